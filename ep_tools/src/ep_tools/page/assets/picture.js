// Draws the graph: little of each box from far away, all of it from near.

const LABELS_FROM = 0.36;
const NAMES_FROM = 0.75;
const TINTS_FROM = 0.22;
const CURVES_FROM = 0.1;
const MOST_LONG_COPIES = 40;

const patterns = new Map();
let colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "surface", "ink", "soft", "edge", "line", "copy", "mark"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

// A tile of 8 by 8 pixels in a provider's colour, told from others without the colour too.
function patternTile(provider) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = provider.colour;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = pen.fillStyle = "#ffffff90";
  pen.lineWidth = 1.6;
  const lines = [
    [], [[-2, 10, 10, -2], [-6, 6, 6, -6], [2, 14, 14, 2]], [], [[0, 4, 8, 4]], [[4, 0, 4, 8]],
    [[0, 4, 8, 4], [4, 0, 4, 8]]][provider.pattern];
  for (const [x1, y1, x2, y2] of lines) {
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
    pen.stroke();
  }
  if (provider.pattern === 2) {
    for (const [x, y] of [[2, 2], [6, 6]]) {
      pen.beginPath();
      pen.arc(x, y, 1.3, 0, 7);
      pen.fill();
    }
  }
  return tile;
}

function patternOf(pen, provider) {
  if (!patterns.has(provider)) patterns.set(provider, pen.createPattern(patternTile(provider), "repeat"));
  return patterns.get(provider);
}

function draw() {
  const pen = canvas.getContext("2d");
  const ratio = canvas.width / view.width;
  const lit = highlighted();
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colours.ground;
  pen.fillRect(0, 0, view.width, view.height);
  const scale = ratio * view.zoom;
  pen.setTransform(scale, 0, 0, scale, -view.x * scale, -view.y * scale);
  drawLinks(pen, lit);
  canvas.dataset.nodes = drawBoxes(pen, lit);
}

// The boxes and lines of what is selected; null where nothing is.
function highlighted() {
  const chosen = view.selected;
  if (!chosen) return null;
  if (chosen.kind === "partition") return { boxes: chosen.members, links: new Set() };
  if (chosen.kind === "copy") {
    const links = chosen.links.map((place) => view.scope.links[place]);
    return { boxes: new Set(links.flatMap((link) => [link.source, link.target])), links: new Set(links) };
  }
  const links = [...chosen.from, ...chosen.into];
  const near = links.flatMap((link) => [link.source, link.target]);
  return { boxes: new Set([chosen.index, ...near]), links: new Set(links) };
}

function isSeen(left, top, right, bottom) {
  return right >= view.x && bottom >= view.y
    && left <= view.x + view.width / view.zoom && top <= view.y + view.height / view.zoom;
}

// ------------------------------------------------------------ lines

function drawLinks(pen, lit) {
  const plain = new Path2D();
  const copied = new Path2D();
  const bright = new Path2D();
  const brightCopied = new Path2D();
  const ends = new Path2D();
  for (const link of view.scope.links) {
    if (!isSeen(link.left - 60, link.top, link.right + 60, link.bottom)) continue;
    const isLit = lit !== null && lit.links.has(link);
    if (link.points || isLit || (link.crosses && view.scope.longCopies <= MOST_LONG_COPIES)) {
      const path = link.crosses ? (isLit ? brightCopied : copied) : (isLit ? bright : plain);
      trace(path, link.whole);
    } else if (view.zoom > TINTS_FROM) {
      stub(link.crosses ? copied : ends, link.whole);
    }
  }
  const width = Math.max(1.3, 0.5 / view.zoom);
  const faint = lit === null ? 0.85 : 0.3;
  stroke(pen, plain, colours.line, width, faint, []);
  stroke(pen, ends, colours.line, width, faint, [2, 3]);
  stroke(pen, copied, colours.copy, width * 1.6, lit === null ? 1 : 0.35, [7, 4]);
  stroke(pen, bright, colours.mark, width * 2, 1, []);
  stroke(pen, brightCopied, colours.copy, width * 3, 1, [7, 4]);
}

function stroke(pen, path, colour, width, alpha, dash) {
  pen.globalAlpha = alpha;
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.stroke(path);
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

function trace(path, points) {
  path.moveTo(points[0], points[1]);
  for (let i = 2; i < points.length; i += 2) {
    const [x1, y1, x2, y2] = [points[i - 2], points[i - 1], points[i], points[i + 1]];
    if (x1 === x2 || y1 === y2 || view.zoom < CURVES_FROM) {
      path.lineTo(x2, y2);
    } else {
      const bend = Math.max(Math.abs(y2 - y1) / 2, 16);
      path.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
    }
  }
}

// A line that is too long to be shown all the time: only where it leaves and where it arrives.
function stub(path, points) {
  const last = points.length - 2;
  path.moveTo(points[0], points[1]);
  path.lineTo(points[0], points[1] + 12);
  path.moveTo(points[last], points[last + 1] - 12);
  path.lineTo(points[last], points[last + 1]);
}

// ------------------------------------------------------------ boxes

function drawBoxes(pen, lit) {
  let nodes = 0;
  pen.textBaseline = "middle";
  for (const box of view.scope.boxes) {
    const left = box.x - box.w / 2;
    const top = box.y - BOX_HEIGHT / 2;
    if (!isSeen(left, top, left + box.w, top + BOX_HEIGHT)) continue;
    if (box.kind === "node") nodes += 1;
    pen.globalAlpha = lit === null || lit.boxes.has(box.index) ? 1 : 0.25;
    if (box.kind === "node") drawNode(pen, box, left, top);
    else drawEnd(pen, box, left, top);
    pen.globalAlpha = 1;
    if (box === view.selected || view.matches.has(box)) drawRing(pen, box, left, top);
  }
  return nodes;
}

function drawNode(pen, box, left, top) {
  const provider = data.providers[box.provider];
  const warmth = heat.by === "provider" ? null : heatColour(box);
  if (view.zoom < TINTS_FROM) {
    const grown = Math.max(0, 2 / view.zoom - BOX_HEIGHT);
    pen.fillStyle = nodeColour(box, warmth);
    pen.fillRect(left, top - grown / 2, box.w, BOX_HEIGHT + grown);
    return;
  }
  pen.fillStyle = colours.surface;
  pen.beginPath();
  pen.roundRect(left, top, box.w, BOX_HEIGHT, 6);
  pen.fill();
  if (warmth) pen.fillStyle = cssColour(warmth);
  else if (heat.by === "provider") pen.fillStyle = `${provider.colour}38`;
  pen.fill();
  pen.strokeStyle = provider.colour;
  pen.lineWidth = 1.4;
  pen.stroke();
  const pattern = patternOf(pen, provider);
  pattern.setTransform(new DOMMatrix().scale(1 / view.zoom));
  pen.fillStyle = pattern;
  pen.beginPath();
  pen.roundRect(left, top, 20, BOX_HEIGHT, [6, 0, 0, 6]);
  pen.fill();
  if (view.zoom < LABELS_FROM) return;
  pen.fillStyle = provider.colour;
  pen.fillRect(left + 3, box.y - 8, 14, 16);
  pen.fillStyle = "#ffffff";
  pen.font = "bold 12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.fillText(provider.letter, left + 10, box.y + 1);
  pen.textAlign = "left";
  pen.fillStyle = warmth ? inkOn(warmth) : colours.ink;
  const named = view.zoom >= NAMES_FROM;
  const size = named ? 13 : letterSize();
  pen.font = `600 ${size}px system-ui, sans-serif`;
  pen.fillText(fitted(box.op, box.w - 30, size * 0.56), left + 26, named ? box.y - 7 : box.y + 1);
  if (!named) return;
  pen.font = "10.5px system-ui, sans-serif";
  pen.fillStyle = warmth ? inkOn(warmth) : colours.soft;
  pen.fillText(fitted(box.name, box.w - 30, 5.6), left + 26, box.y + 9);
}

// A node's one colour, where there is no room for more.
function nodeColour(box, warmth) {
  if (heat.by === "provider") return data.providers[box.provider].colour;
  return warmth ? cssColour(warmth) : colours.line;
}

// Larger from far away, so that it can still be read.
function letterSize() {
  return Math.min(19, Math.max(13, 8 / view.zoom));
}

function drawEnd(pen, box, left, top) {
  pen.fillStyle = colours.soft;
  if (view.zoom < TINTS_FROM) {
    pen.fillRect(left, top, box.w, BOX_HEIGHT);
    return;
  }
  pen.beginPath();
  pen.roundRect(left, top + 5, box.w, BOX_HEIGHT - 10, 14);
  pen.fillStyle = colours.surface;
  pen.fill();
  pen.strokeStyle = colours.soft;
  pen.lineWidth = 1.4;
  pen.stroke();
  if (view.zoom < LABELS_FROM) return;
  pen.fillStyle = colours.ink;
  pen.font = `${letterSize()}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.fillText(fitted(box.name, box.w - 16, letterSize() * 0.56), box.x, box.y + 1);
  pen.textAlign = "left";
}

function drawRing(pen, box, left, top) {
  pen.strokeStyle = box === view.selected ? colours.mark : "#e6a100";
  pen.lineWidth = Math.max(3, 2.5 / view.zoom);
  pen.beginPath();
  pen.roundRect(left - 3, top - 3, box.w + 6, BOX_HEIGHT + 6, 8);
  pen.stroke();
}

function fitted(text, room, letter) {
  return shortened(text, Math.max(4, Math.floor(room / letter)));
}
