// What runs when: the steps of a graph's plan in order, a lane for each provider and one for copies;
// or, where times are known, the same along a clock.

const LANE = 22;
const COPY_WIDTH = 14;
let mode = "steps";

function showTimeline(scope, go) {
  const modes = ["steps", ...(predictedTrack(scope) ? ["predicted"] : []),
    ...(data.timeline ? ["measured"] : [])];
  const shown = modes.includes(mode) ? mode : "steps";
  showModes(modes, shown, scope, go);
  document.getElementById("steps").hidden = shown !== "steps";
  document.getElementById("clock-room").hidden = shown === "steps";
  if (shown === "steps") showSteps(scope, go);
  else showClock(shown === "predicted" ? predictedTrack(scope) : measuredTrack(), go);
}

function showModes(modes, shown, scope, go) {
  const titles = {
    steps: () => "Steps",
    predicted: () => `Predicted ${timeText(predictedTrack(scope).seconds)}`,
    measured: () => `Measured ${timeText(measuredTrack().seconds)}`,
  };
  const room = document.getElementById("modes");
  room.hidden = modes.length < 2;
  room.replaceChildren(...modes.map((name) => {
    const button = element("button", { type: "button", id: `mode-${name}`, textContent: titles[name]() });
    button.setAttribute("role", "tab");
    button.setAttribute("aria-selected", String(name === shown));
    button.setAttribute("aria-controls", "tracks");
    button.addEventListener("click", () => {
      mode = name;
      showTimeline(scope, go);
      document.getElementById(`mode-${name}`).focus();
    });
    return button;
  }));
  if (shown === "measured") {
    room.append(element("span", { className: "muted",
      textContent: `one run of ${data.times.measured.runs}, of middle length`
        + `${measuredTrack().spans.some((span) => span.queued) ? "; dashed: handing work to a device" : ""}`
        + `${measuredTrack().spans.some((span) => span.late) ? "; pale: a copy that was seen late" : ""}` }));
  } else if (shown === "predicted") {
    room.append(element("span", { className: "muted",
      textContent: `${scope.name ? "the body once, " : ""}nothing overlapping` }));
  }
}

function showLanes(lanes) {
  document.getElementById("lanes").replaceChildren(...lanes.map(({ text, height }) => {
    const lane = element("div", { textContent: text, title: text });
    lane.style.height = lane.style.lineHeight = `${height}px`;
    if (height > LANE) lane.style.lineHeight = `${LANE}px`;
    return lane;
  }));
}

function showSteps(scope, go) {
  const used = new Set(scope.steps.map(([kind, place]) => laneOf(scope, kind, place)));
  const lanes = [...data.providers.keys(), "copies"].filter((lane) => used.has(lane));
  showLanes(lanes.map((lane) => ({
    text: lane === "copies" ? "copies" : data.providers[lane].name, height: LANE,
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

function stepTarget(scope, kind, place) {
  if (kind === "partition") return scope.partitions[place];
  return kind === "copy" ? scope.copies[place] : scope.boxes[place];
}

// A partition, a copy or a node in words.
function thingText(thing) {
  if (thing.kind === "partition") return `${thing.name}, ${counted(thing.nodes.length, "node")}`;
  if (thing.kind === "copy") {
    return `copy ${shortened(valueOf(thing.scope, thing.value).name, 80)}, `
      + `${sizeText(thing.bytes)}, ${thing.source} to ${thing.target}`;
  }
  return `${thing.op} ${shortened(thing.name, 80)}`;
}

function openThing(thing, go) {
  ({ partition: go.partition, copy: go.copy, node: go.box })[thing.kind](thing);
}

// A partition is marked too if the node that is selected is in it.
function isCurrent(thing) {
  const chosen = view.selected;
  return chosen === thing || Boolean(chosen && thing.kind === "partition" && chosen.kind === "node"
    && chosen.scope === thing.scope && chosen.part === thing.index);
}

function stepButton(scope, kind, place, number, go) {
  const step = element("button", { type: "button", className: `step ${kind}` });
  const target = stepTarget(scope, kind, place);
  if (kind === "partition") step.textContent = String(target.nodes.length);
  if (kind === "node") step.textContent = target.op;
  step.title = `${number + 1}: ${thingText(target)}`;
  step.setAttribute("aria-label", step.title);
  if (kind !== "copy") {
    const { colour } = data.providers[laneOf(scope, kind, place)];
    step.style.backgroundColor = colour;
    step.style.color = inkOn(rgbOf(colour));
  }
  if (isCurrent(target)) step.setAttribute("aria-current", "true");
  step.addEventListener("click", () => openThing(target, go));
  return step;
}
