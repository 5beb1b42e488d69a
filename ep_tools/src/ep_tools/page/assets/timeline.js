// The steps of a graph's plan from left to right, a lane for each provider and one for copies.

const LANE = 22;
const COPY_WIDTH = 14;

function showSteps(scope, go) {
  const used = new Set(scope.steps.map(([kind, place]) => laneOf(scope, kind, place)));
  const lanes = [...data.providers.keys(), "copies"].filter((lane) => used.has(lane));
  document.getElementById("lanes").replaceChildren(...lanes.map((lane) => element("div", {
    textContent: lane === "copies" ? "copies" : data.providers[lane].name,
  })));
  let left = 2;
  const made = scope.steps.map(([kind, place], number) => {
    const step = stepButton(scope, kind, place, number, go);
    const width = kind === "copy" ? COPY_WIDTH : stepWidth(scope, kind, place);
    step.style.left = `${left}px`;
    step.style.top = `${lanes.indexOf(laneOf(scope, kind, place)) * LANE + 2}px`;
    step.style.width = `${width}px`;
    left += width + 3;
    return step;
  });
  const room = element("div", {});
  room.style.width = `${left}px`;
  room.style.height = `${lanes.length * LANE}px`;
  document.getElementById("steps").replaceChildren(room, ...made);
}

function laneOf(scope, kind, place) {
  if (kind === "copy") return "copies";
  return kind === "partition" ? scope.partitions[place].provider : scope.boxes[place].provider;
}

function stepWidth(scope, kind, place) {
  const nodes = kind === "partition" ? scope.partitions[place].nodes.length : 1;
  return Math.round(Math.min(220, 26 + 12 * Math.sqrt(nodes)));
}

function stepButton(scope, kind, place, number, go) {
  const step = element("button", { type: "button", className: `step ${kind}` });
  const target = kind === "partition" ? scope.partitions[place]
    : kind === "copy" ? scope.copies[place] : scope.boxes[place];
  if (kind === "partition") {
    step.textContent = String(target.nodes.length);
    step.title = `${number + 1}: ${target.name}, ${counted(target.nodes.length, "node")}`;
  } else if (kind === "copy") {
    step.title = `${number + 1}: copy ${shortened(valueOf(scope, target.value).name, 80)}, `
      + `${sizeText(target.bytes)}, ${target.source} to ${target.target}`;
  } else {
    step.textContent = target.op;
    step.title = `${number + 1}: ${target.op} ${shortened(target.name, 80)}`;
  }
  step.setAttribute("aria-label", step.title);
  if (kind !== "copy") step.style.backgroundColor = data.providers[laneOf(scope, kind, place)].colour;
  if (view.selected === target || (view.selected && kind === "partition"
    && view.selected.kind === "node" && view.selected.part === place)) {
    step.setAttribute("aria-current", "true");
  }
  step.addEventListener("click", () => (
    { partition: go.partition, copy: go.copy, node: go.box }[kind](target)));
  return step;
}
