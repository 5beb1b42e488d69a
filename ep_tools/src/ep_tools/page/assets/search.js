// Finds nodes of all graphs by a part of their names or operators.

const MOST_SHOWN = 60;

function setUpSearch(go) {
  const field = document.getElementById("query");
  const found = document.getElementById("found");
  const count = document.getElementById("count");
  let hits = [];
  let current = 0;

  function search() {
    const wanted = field.value.trim().toLowerCase();
    hits = wanted === "" ? [] : data.scopes.flatMap((scope) => scope.boxes.filter((box) =>
      box.name.toLowerCase().includes(wanted) || (box.op || "").toLowerCase().includes(wanted)));
    current = 0;
    view.matches = new Set(hits);
    count.textContent = wanted === "" ? "" : `${hits.length} found`;
    list();
    redraw();
  }

  function list() {
    found.replaceChildren(...hits.slice(0, MOST_SHOWN).map((box, place) => {
      const item = element("li", { id: `hit-${place}` },
        `${box.op || box.kind} `,
        element("small", { textContent: shortened(box.name, 160) }),
        box.scope.name ? element("small", { textContent: `  in ${shortened(box.scope.name, 60)}` }) : null);
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(place === current));
      item.addEventListener("pointerdown", (event) => { event.preventDefault(); choose(place); });
      return item;
    }));
    const open = hits.length > 0 && document.activeElement === field;
    found.hidden = !open;
    field.setAttribute("aria-expanded", String(open));
    if (open) field.setAttribute("aria-activedescendant", `hit-${current}`);
    else field.removeAttribute("aria-activedescendant");
  }

  function choose(place) {
    current = place;
    if (!hits[place]) return;
    found.hidden = true;
    field.setAttribute("aria-expanded", "false");
    go.box(hits[place]);
  }

  function move(by) {
    const shown = Math.min(hits.length, MOST_SHOWN);
    if (!shown) return;
    current = (current + by + shown) % shown;
    list();
    document.getElementById(`hit-${current}`).scrollIntoView({ block: "nearest" });
  }

  field.addEventListener("input", search);
  field.addEventListener("focus", list);
  field.addEventListener("blur", () => { found.hidden = true; });
  field.addEventListener("keydown", (event) => {
    const actions = {
      ArrowDown: () => move(1),
      ArrowUp: () => move(-1),
      Enter: () => { choose(current); canvas.focus(); },
      Escape: () => { field.value = ""; search(); canvas.focus(); },
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
}
