// The data, with what belongs together joined. Nothing here touches the page.

const data = JSON.parse(document.getElementById("data").textContent);
const NOTHING = -1;
const BOX_HEIGHT = 38;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

data.providers.forEach((provider, index) => {
  provider.colour = data.colours[index % data.colours.length];
  provider.letter = LETTERS[index % LETTERS.length];
  provider.pattern = index % 6;
});

data.scopes.forEach((scope, place) => {
  scope.index = place;
  scope.title = scope.name || "main graph";
  scope.boxes.forEach((box, index) => {
    box.index = index;
    box.scope = scope;
    box.into = [];
    box.from = [];
  });
  scope.links = scope.links.map(([source, target, value, crosses, points]) =>
    joined(scope, { source, target, value, crosses, points }));
  scope.copies.forEach((copy, index) => Object.assign(copy, { index, scope, kind: "copy" }));
  scope.partitions.forEach((part, index) => {
    Object.assign(part, { index, scope, kind: "partition", members: new Set(part.nodes) });
  });
  scope.longCopies = scope.links.filter((link) => link.crosses && !link.points).length;
  scope.nodes = scope.boxes.filter((box) => box.kind === "node");
});

// The graph that holds the node whose body a scope is.
data.scopes.forEach((scope) => {
  scope.nodes.forEach((box) => {
    box.bodies.forEach((inner) => { data.scopes[inner].parent = box; });
  });
});

function joined(scope, link) {
  const source = scope.boxes[link.source];
  const target = scope.boxes[link.target];
  source.into.push(link);
  target.from.push(link);
  link.whole = link.points || [
    source.x, source.y + BOX_HEIGHT / 2, target.x, target.y - BOX_HEIGHT / 2];
  link.left = link.top = Infinity;
  link.right = link.bottom = -Infinity;
  for (let i = 0; i < link.whole.length; i += 2) {
    link.left = Math.min(link.left, link.whole[i]);
    link.right = Math.max(link.right, link.whole[i]);
    link.top = Math.min(link.top, link.whole[i + 1]);
    link.bottom = Math.max(link.bottom, link.whole[i + 1]);
  }
  return link;
}

function valueOf(scope, place) {
  const [name, type, bytes, constant] = scope.values[place];
  return { name, type: data.texts[type], bytes, constant };
}

function sizeText(bytes) {
  if (bytes === null) return "unknown size";
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let size = bytes / 1024;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${(tenths(size) / 10).toFixed(1)} ${units[unit]}`;
}

// To the nearest tenth, halves to the even one: as in the report on a terminal.
function tenths(size) {
  const nearest = Math.round(size * 10);
  return size * 10 % 1 === 0.5 && nearest % 2 ? nearest - 1 : nearest;
}

// What several sizes come to, as far as they are known.
function sumText(sizes) {
  const known = sizes.filter((size) => size !== null);
  const total = sizeText(known.reduce((sum, size) => sum + size, 0));
  const rest = sizes.length - known.length;
  if (!rest) return total;
  return known.length ? `${total} and ${rest} of unknown size` : "unknown size";
}

function counted(number, noun) {
  const many = noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${number} ${number === 1 ? noun : many}`;
}

// As on a terminal, and finer: 1.25 s, 3.40 ms, 12.0 \u00b5s, 40 ns.
function timeText(seconds) {
  const size = Math.abs(seconds);
  const sign = seconds < 0 ? "\u2212" : "";
  if (size >= 1) return `${sign}${size.toFixed(2)} s`;
  if (size >= 1e-3) return `${sign}${(size * 1e3).toFixed(2)} ms`;
  if (size >= 5e-8 || size === 0) return `${sign}${(size * 1e6).toFixed(1)} \u00b5s`;
  return `${sign}${(size * 1e9).toPrecision(2)} ns`;
}

// Seconds of one run that were measured; null where it never ran or the device doesn't tell.
function measuredOf(thing) {
  return thing.measured ? thing.measured[1] : null;
}

// What is predicted for one run, in which a thing may happen more than once.
function predictedOf(thing) {
  return thing.seconds === null || !thing.measured ? thing.seconds : thing.seconds * thing.measured[0];
}

function shortened(text, length) {
  return text.length <= length ? text : `...${text.slice(3 - length)}`;
}
