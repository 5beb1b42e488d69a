// Joins the parts: what is selected, which tab is open, which graph is shown.

const byId = (id) => document.getElementById(id);
const READABLE = 0.9;
const MAP_WIDTH = 190;
const MAP_HEIGHT = 130;
let tab = "selection";
let mapped = null;

const go = {
  box(box) {
    if (box.scope !== view.scope) showScope(box.scope);
    select(box);
    centreOn(box.x, box.y, Math.max(view.zoom, READABLE));
  },
  partition(part) {
    if (part.scope !== view.scope) showScope(part.scope);
    select(part);
    reveal(part.nodes);
  },
  copy(copy) {
    if (copy.scope !== view.scope) showScope(copy.scope);
    select(copy);
    reveal(copy.links.flatMap((place) => {
      const link = view.scope.links[place];
      return [link.source, link.target];
    }));
  },
  scope(scope) {
    showScope(scope);
    canvas.focus();
  },
};

// Bring boxes into view, as near as they all fit.
function reveal(places) {
  if (!places.length) return;
  const boxes = places.map((place) => view.scope.boxes[place]);
  const left = Math.min(...boxes.map((box) => box.x - box.w / 2));
  const right = Math.max(...boxes.map((box) => box.x + box.w / 2));
  const top = Math.min(...boxes.map((box) => box.y - BOX_HEIGHT / 2));
  const bottom = Math.max(...boxes.map((box) => box.y + BOX_HEIGHT / 2));
  const zoom = Math.min(1.2, view.width / (right - left + 120), view.height / (bottom - top + 120));
  centreOn((left + right) / 2, (top + bottom) / 2, Math.max(zoom, farthest()));
}

function select(thing) {
  view.selected = thing;
  tab = "selection";
  showPanel();
  showTimeline(view.scope, go);
  const current = byId("steps").querySelector("[aria-current]");
  if (current) current.scrollIntoView({ block: "nearest", inline: "nearest" });
  redraw();
}

// ------------------------------------------------------------ the panel and its tabs

const TABS = {
  selection: { title: () => "Selection", show: showSelection },
  partitions: {
    title: () => `Partitions ${view.scope.partitions.length}`,
    show: () => showPartitions(view.scope, go),
  },
  copies: { title: () => `Copies ${view.scope.copies.length}`, show: () => showCopies(view.scope, go) },
  times: { title: () => "Time", show: () => showTimes(view.scope, go) },
  refusals: { title: () => "Why not", show: () => showRefusals(view.scope, go) },
};

function showSelection() {
  const chosen = view.selected;
  if (!chosen) {
    panel.replaceChildren(
      element("p", { textContent: "Click a node, a partition, a copy or a step, or search." }),
      element("p", { className: "muted", textContent: "Dashed red lines are copies between memories." }),
      ...overview());
  } else if (chosen.kind === "partition") showPartition(view.scope, chosen, go);
  else if (chosen.kind === "copy") showCopy(view.scope, chosen, go);
  else showBox(chosen, go);
}

function showPanel() {
  const tabs = document.querySelector(".tabs");
  tabs.replaceChildren(...Object.entries(TABS).map(([name, { title }]) => {
    const button = element("button", { type: "button", id: `tab-${name}`, textContent: title() });
    button.setAttribute("role", "tab");
    button.setAttribute("aria-selected", String(name === tab));
    button.setAttribute("aria-controls", "panel");
    button.tabIndex = name === tab ? 0 : -1;
    button.addEventListener("click", () => openTab(name));
    return button;
  }));
  panel.setAttribute("aria-labelledby", `tab-${tab}`);
  TABS[tab].show();
  panel.scrollTop = 0;
}

function openTab(name) {
  tab = name;
  showPanel();
  byId(`tab-${name}`).focus();
}

document.querySelector(".tabs").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  const names = Object.keys(TABS);
  openTab(names[(names.indexOf(tab) + by + names.length) % names.length]);
});

// ------------------------------------------------------------ graphs, legend, map

function showScope(scope) {
  view.scope = scope;
  view.selected = null;
  byId("scope").value = String(scope.index);
  canvas.setAttribute("aria-label", `${scope.title}: ${counted(scope.nodes.length, "node")}, `
    + `${counted(scope.partitions.length, "partition")}, ${counted(scope.copies.length, "copy")}`);
  showLegend(scope);
  mapped = null;
  tab = "selection";
  showPanel();
  showTimeline(scope, go);
  fitAll();
}

function showLegend(scope) {
  const counts = data.providers.map(() => 0);
  scope.nodes.forEach((box) => { counts[box.provider] += 1; });
  const rows = data.providers.map((provider, index) => {
    const kind = provider.standsIn ? ", not here" : "";
    return element("li", {}, swatch(provider),
      `${shortened(provider.name, 60)}${kind}: ${counted(counts[index], "node")}`);
  });
  if (scope.copies.length) {
    const total = sumText(scope.copies.map((copy) => copy.bytes));
    rows.push(element("li", {}, element("span", { className: "swatch line" }),
      `${counted(scope.copies.length, "copy")}, ${total}`));
  }
  if (heat.by !== "provider") rows.push(heatLegend());
  byId("legend").replaceChildren(...rows);
}

function drawMap() {
  const map = byId("map");
  const scale = Math.min(MAP_WIDTH / view.scope.width, MAP_HEIGHT / view.scope.height);
  if (mapped === null) {
    map.width = Math.max(8, Math.round(view.scope.width * scale));
    map.height = Math.max(8, Math.round(view.scope.height * scale));
    mapped = document.createElement("canvas");
    mapped.width = map.width;
    mapped.height = map.height;
    const pen = mapped.getContext("2d");
    for (const box of view.scope.boxes) {
      pen.fillStyle = box.kind === "node" ? nodeColour(box, heatColour(box)) : colours.soft;
      pen.fillRect((box.x - box.w / 2) * scale, (box.y - BOX_HEIGHT / 2) * scale,
        Math.max(1, box.w * scale), Math.max(1, BOX_HEIGHT * scale));
    }
  }
  const [width, height] = [view.width / view.zoom, view.height / view.zoom];
  map.hidden = view.width < 3 * MAP_WIDTH
    || (width >= view.scope.width && height >= view.scope.height);
  const pen = map.getContext("2d");
  pen.clearRect(0, 0, map.width, map.height);
  pen.drawImage(mapped, 0, 0);
  pen.strokeStyle = colours.mark;
  pen.lineWidth = 1.5;
  pen.strokeRect(view.x * scale, view.y * scale, width * scale, height * scale);
}

function followMap() {
  const map = byId("map");
  const move = (event) => {
    if (!(event.buttons & 1)) return;
    const scale = map.width / view.scope.width;
    centreOn(event.offsetX / scale, event.offsetY / scale);
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); move(event); });
  map.addEventListener("pointermove", move);
}

// ------------------------------------------------------------ theme, keys, start

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readColours();
  mapped = null;
  showLegend(view.scope);
  drawClock();
  redraw();
}

function setColouring(by) {
  setHeat(by);
  byId("colour").value = by;
  mapped = null;
  showLegend(view.scope);
  redraw();
}

function step(by) {
  const nodes = view.scope.nodes;
  if (!nodes.length) return;
  const at = nodes.indexOf(view.selected);
  go.box(nodes[at < 0 ? (by > 0 ? 0 : nodes.length - 1) : (at + by + nodes.length) % nodes.length]);
}

function enterBody() {
  const box = view.selected;
  if (box && box.bodies && box.bodies.length) go.scope(data.scopes[box.bodies[0]]);
}

const KEYS = {
  n: () => step(1),
  p: () => step(-1),
  Enter: enterBody,
  Escape: () => (view.selected || !view.scope.parent ? select(null) : go.box(view.scope.parent)),
};

function setUpKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) return;
    if (event.key === "/") {
      event.preventDefault();
      byId("query").focus();
      return;
    }
    const action = event.target === canvas || event.target === document.body
      ? VIEW_KEYS[event.key] || KEYS[event.key] : null;
    if (!action) return;
    event.preventDefault();
    action();
  });
}

// Paper is light, and shows all of the graph.
function setUpPrint() {
  let theme = null;
  window.addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    setTheme("light");
    fitAll();
    draw();
  });
  window.addEventListener("afterprint", () => setTheme(theme));
}

// What a link to the page may ask for: #scope=NAME&node=NAME&partition=NAME&tab=copies&theme=dark
// &colour=predicted&timeline=measured
function followAddress() {
  const wish = new URLSearchParams(window.location.hash.slice(1));
  if (wish.get("theme")) setTheme(wish.get("theme") === "dark" ? "dark" : "light");
  if (heatChoices().includes(wish.get("colour"))) setColouring(wish.get("colour"));
  if (wish.get("timeline")) {
    mode = wish.get("timeline");
    showTimeline(view.scope, go);
  }
  const scope = data.scopes.find((one) => one.name === (wish.get("scope") || ""));
  if (!scope) return;
  if (scope !== view.scope) showScope(scope);
  const box = scope.nodes.find((one) => one.name === wish.get("node"));
  const part = scope.partitions.find((one) => one.name === wish.get("partition"));
  if (box) go.box(box);
  else if (part) go.partition(part);
  if (TABS[wish.get("tab")]) {
    tab = wish.get("tab");
    showPanel();
  }
}

function start() {
  byId("title").textContent = data.title;
  byId("summary").textContent = byId("summary").title = data.summary;
  byId("notes").replaceChildren(...data.notes.map((text) => element("p", { textContent: text })));
  byId("notes").hidden = !data.notes.length;
  byId("scope").replaceChildren(...data.scopes.map((scope) => element("option", {
    value: String(scope.index), textContent: `${shortened(scope.title, 80)} (${scope.nodes.length})`,
  })));
  byId("scope-label").hidden = data.scopes.length < 2;
  byId("scope").addEventListener("change", (event) => go.scope(data.scopes[event.target.value]));
  const choices = heatChoices();
  byId("colour-label").hidden = choices.length < 2;
  [...byId("colour").options].forEach((option) => { option.hidden = !choices.includes(option.value); });
  byId("colour").addEventListener("change", (event) => setColouring(event.target.value));
  byId("closer").addEventListener("click", VIEW_KEYS["+"]);
  byId("farther").addEventListener("click", VIEW_KEYS["-"]);
  byId("fit").addEventListener("click", fitAll);
  byId("theme").addEventListener("click", () =>
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  byId("keys-button").addEventListener("click", () => {
    byId("keys").hidden = !byId("keys").hidden;
    byId("keys-button").setAttribute("aria-expanded", String(!byId("keys").hidden));
  });
  let waiting = false;
  redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); drawMap(); });
  };
  setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  resized();
  showScope(data.scopes[0]);
  setUpSearch(go);
  setUpKeys();
  followHands((box) => select(box));
  followMap();
  setUpClock();
  new ResizeObserver(resized).observe(byId("room"));
  setUpPrint();
  window.addEventListener("hashchange", followAddress);
  followAddress();
}

start();
