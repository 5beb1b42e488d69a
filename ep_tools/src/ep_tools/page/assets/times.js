// What is said of time in the panel: what was predicted and what was measured.

const FARTHEST = 60;

// Lines of the facts about one thing.
function timeFacts(thing) {
  const found = [];
  if (thing.seconds !== null) found.push(["predicted", timeText(thing.seconds)]);
  if (thing.measured) {
    const [times, seconds] = thing.measured;
    const often = times === 1 ? "" : `, ${Number(times.toPrecision(3))} times a run`;
    found.push(["measured", seconds === null
      ? `only handing it to the device, which doesn't tell its own time${often}`
      : `${timeText(seconds)} of a run${often}`]);
  }
  return found;
}

// The same on one line of a list; null where nothing is known.
function timeLine(thing) {
  const parts = [];
  if (thing.seconds !== null) parts.push(`${timeText(thing.seconds)} predicted`);
  const measured = measuredOf(thing);
  if (measured !== null) parts.push(`${timeText(measured)} measured`);
  return parts.length ? element("div", { className: "type", textContent: parts.join(", ") }) : null;
}

function sumOfTimes(things) {
  if (!things.length || things.some((thing) => thing.seconds === null)) return [];
  const total = things.reduce((sum, thing) => sum + thing.seconds, 0);
  return [element("p", { textContent: `${timeText(total)} predicted` })];
}

// What the page says while nothing is selected.
function overview() {
  const times = data.times;
  const rows = [["placed by", `${times.strategy}: ${times.basis}`]];
  if (times.predicted !== null) rows.push(["predicted", `${timeText(times.predicted)} a run`]);
  if (times.greedy !== null) rows.push(["by greedy", comparedWith(times.greedy, times.predicted)]);
  if (times.measured) {
    const { runs, seconds } = times.measured;
    rows.push(["measured", `${timeText(seconds)} a run, the median of ${runs}`]);
  }
  return [heading("this placement"), facts(rows),
    ...(times.rules.length ? [heading("asked for"), facts(times.rules)] : []),
    ...(times.memory.length ? [heading("memory"), facts(times.memory)] : [])];
}

function comparedWith(seconds, other) {
  const told = timeText(seconds);
  if (!other || !seconds) return told;
  const percent = Math.round((seconds / other - 1) * 100);
  if (percent === 0) return `${told}, as much`;
  return `${told}, ${Math.abs(percent)} % ${percent > 0 ? "more" : "less"}`;
}

function showTimes(scope, go) {
  panel.replaceChildren(
    element("h2", { textContent: "Time" }),
    ...overview().slice(1),
    ...shares(),
    ...(data.times.measured ? farthestApart(go) : longest(go)));
}

// Where the predicted time of a run goes, each body counted once.
function shares() {
  if (!data.times.predicted) return [];
  const found = new Map();
  const add = (name, seconds) => found.set(name, (found.get(name) || 0) + seconds);
  data.scopes.forEach((scope) => {
    scope.partitions.forEach((part) => {
      const nodes = part.nodes.reduce((sum, place) => sum + scope.boxes[place].seconds, 0);
      add(`nodes on ${data.providers[part.provider].name}`, nodes);
      add("starting partitions", Math.max(0, part.seconds - nodes));
    });
    scope.copies.forEach((copy) => add("copies", copy.seconds || 0));
  });
  const rows = [...found].sort((a, b) => b[1] - a[1]);
  return [heading("where the predicted time goes"), element("div", { className: "bars" },
    ...rows.flatMap(([name, seconds]) => [element("span", { textContent: name }),
      bar(seconds / data.times.predicted),
      element("span", { className: "number", textContent: timeText(seconds) })]))];
}

function bar(part) {
  const made = element("span", { className: "bar" });
  const inner = element("span", {});
  inner.style.width = `${Math.min(100, Math.max(0.5, part * 100))}%`;
  made.append(inner);
  return made;
}

function everything() {
  return data.scopes.flatMap((scope) => [...scope.partitions, ...scope.copies, ...scope.nodes]);
}

function thingRow(thing, figures, go) {
  const kind = { partition: "partition", copy: "copy", node: "node" }[thing.kind];
  const name = thing.kind === "copy" ? valueOf(thing.scope, thing.value).name
    : thing.kind === "node" ? `${thing.op} ${thing.name}` : thing.name;
  const mark = thing.kind === "copy" ? element("span", { className: "swatch line" })
    : swatch(data.providers[thing.provider]);
  const where = thing.scope.name ? ` in ${shortened(thing.scope.name, 60)}` : "";
  return row([mark, shortened(name, 120),
    element("div", { className: "type", textContent: `${kind}${where}: ${figures}` })],
  () => openThing(thing, go), view.selected === thing);
}

function farthestApart(go) {
  const found = everything()
    .filter((thing) => thing.seconds !== null && measuredOf(thing) !== null)
    .map((thing) => ({ thing, predicted: predictedOf(thing), measured: measuredOf(thing) }))
    .sort((a, b) => Math.abs(b.measured - b.predicted) - Math.abs(a.measured - a.predicted));
  if (!found.length) return longest(go);
  return [heading("farthest from what was predicted"),
    list(found.slice(0, FARTHEST), ({ thing, predicted, measured }) => thingRow(thing,
      `${timeText(predicted)} predicted, ${timeText(measured)} measured`, go))];
}

function longest(go) {
  const by = data.times.measured ? measuredOf : (thing) => thing.seconds;
  const found = everything().filter((thing) => by(thing) !== null).sort((a, b) => by(b) - by(a));
  if (!found.length) {
    return [element("p", { className: "muted", textContent: "Neither speeds nor costs are known, "
      + "so that no times are predicted; strategy cost assumes what is missing." })];
  }
  return [heading(data.times.measured ? "what took longest" : "what takes longest, by prediction"),
    list(found.slice(0, FARTHEST), (thing) => thingRow(thing, timeText(by(thing)), go))];
}
