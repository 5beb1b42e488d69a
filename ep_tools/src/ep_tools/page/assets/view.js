// Which part of the graph is looked at, and how hands and keys change that.

const canvas = document.getElementById("picture");
const CLOSEST = 3;
const STEP = 1.25;

const view = {
  scope: data.scopes[0],
  x: 0, y: 0, zoom: 1, width: 1, height: 1,
  selected: null,       // a box, a partition or a copy of the scope
  matches: new Set(),   // boxes that the search found
  fitted: true,         // it shows the whole graph, and shall when the window changes
};
let redraw = () => {};

function farthest() {
  const { width, height } = view.scope;
  return Math.min(1, view.width / (width + 40), view.height / (height + 40)) * 0.8;
}

function zoomTo(zoom, screenX = view.width / 2, screenY = view.height / 2) {
  const next = Math.min(CLOSEST, Math.max(farthest(), zoom));
  view.x += screenX / view.zoom - screenX / next;
  view.y += screenY / view.zoom - screenY / next;
  view.zoom = next;
  view.fitted = false;
  redraw();
}

function fitAll() {
  const { width, height } = view.scope;
  view.zoom = Math.min(1.4, view.width / (width + 40), view.height / (height + 40));
  view.x = (width - view.width / view.zoom) / 2;
  view.y = (height - view.height / view.zoom) / 2;
  view.fitted = true;
  redraw();
}

function moveBy(screenX, screenY) {
  view.x += screenX / view.zoom;
  view.y += screenY / view.zoom;
  view.fitted = false;
  redraw();
}

function centreOn(x, y, zoom = view.zoom) {
  view.zoom = zoom;
  view.x = x - view.width / 2 / zoom;
  view.y = y - view.height / 2 / zoom;
  view.fitted = false;
  redraw();
}

function boxAt(screenX, screenY) {
  const x = view.x + screenX / view.zoom;
  const y = view.y + screenY / view.zoom;
  const slack = Math.max(0, 4 / view.zoom - 4);
  return view.scope.boxes.find((box) =>
    Math.abs(box.x - x) <= box.w / 2 + slack && Math.abs(box.y - y) <= BOX_HEIGHT / 2 + slack);
}

function resized() {
  const room = document.getElementById("room");
  const centre = [view.x + view.width / 2 / view.zoom, view.y + view.height / 2 / view.zoom];
  view.width = room.clientWidth;
  view.height = room.clientHeight;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(view.height * ratio);
  if (view.fitted) fitAll();
  else centreOn(...centre);
}

// ------------------------------------------------------------ hands

function followHands(choose) {
  const fingers = new Map();
  let travelled = 0;
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return Math.hypot(a.x - b.x, a.y - b.y);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({ preventScroll: true });
    fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    if (fingers.size === 1) travelled = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) {
      canvas.title = titleOf(boxAt(event.offsetX, event.offsetY));
      return;
    }
    const distance = fingers.size === 2 ? spread() : 0;
    const [dx, dy] = [event.offsetX - before.x, event.offsetY - before.y];
    fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    travelled += Math.abs(dx) + Math.abs(dy);
    if (travelled < 4) return;
    canvas.classList.add("dragged");
    moveBy(-dx / fingers.size, -dy / fingers.size);
    if (fingers.size === 2 && distance > 0) {
      const [a, b] = [...fingers.values()];
      zoomTo(view.zoom * spread() / distance, (a.x + b.x) / 2, (a.y + b.y) / 2);
    }
  });
  const lifted = (event) => {
    fingers.delete(event.pointerId);
    canvas.classList.remove("dragged");
  };
  canvas.addEventListener("pointerup", (event) => {
    if (fingers.size === 1 && travelled < 4) choose(boxAt(event.offsetX, event.offsetY) || null);
    lifted(event);
  });
  canvas.addEventListener("pointercancel", lifted);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const amount = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    zoomTo(view.zoom * Math.exp(-amount * (event.ctrlKey ? 0.01 : 0.0015)),
      event.offsetX, event.offsetY);
  }, { passive: false });
}

function titleOf(box) {
  return box ? shortened(box.kind === "node" ? `${box.op} ${box.name}` : box.name, 200) : "";
}

const VIEW_KEYS = {
  "+": () => zoomTo(view.zoom * STEP),
  "=": () => zoomTo(view.zoom * STEP),
  "-": () => zoomTo(view.zoom / STEP),
  "0": fitAll,
  ArrowLeft: () => moveBy(-80, 0),
  ArrowRight: () => moveBy(80, 0),
  ArrowUp: () => moveBy(0, -80),
  ArrowDown: () => moveBy(0, 80),
};
