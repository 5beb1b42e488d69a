// Draws spans along a clock, and lets hands and keys look closer.

const clock = document.getElementById("clock");
const AXIS = 18;
const DEEP = 17;
const NEAREST_SPAN = 1e-9;
const SHORTEST_LABEL = 6;

const watch = { track: null, from: 0, to: 1, width: 1, height: 1, tops: [], go: null };

function showClock(track, go) {
  if (watch.track !== track) Object.assign(watch, { track, from: 0, to: track.end });
  watch.go = go;
  let top = AXIS;
  watch.tops = track.rows.map(({ depth }) => {
    const mine = top;
    top += LANE + depth * DEEP;
    return mine;
  });
  watch.height = top + 2;
  showLanes([{ text: "", height: AXIS }, ...track.rows.map(({ text, depth }) => (
    { text, height: LANE + depth * DEEP }))]);
  clock.setAttribute("aria-label", `${counted(track.spans.length, "span")} in `
    + `${counted(track.rows.length, "row")}, ${timeText(track.seconds)}`);
  sizeClock();
  if (view.selected) bringIntoView(track.spans.find((span) => span.thing === view.selected));
  drawClock();
}

function sizeClock() {
  const room = document.getElementById("clock-room");
  const ratio = window.devicePixelRatio || 1;
  watch.width = Math.max(50, room.clientWidth);
  clock.style.height = `${watch.height}px`;
  clock.width = Math.round(watch.width * ratio);
  clock.height = Math.round(watch.height * ratio);
}

function drawClock() {
  if (watch.track === null) return;
  const pen = clock.getContext("2d");
  const ratio = clock.width / watch.width;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colours.surface;
  pen.fillRect(0, 0, watch.width, watch.height);
  drawAxis(pen);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  let drawn = 0;
  let current = null;
  for (const span of watch.track.spans) {
    const place = placeOf(span);
    if (place.left > watch.width || place.left + place.width < 0) continue;
    drawn += 1;
    drawSpan(pen, span, place);
    if (span.thing && span.thing === view.selected) current = place;
  }
  if (current) {
    pen.strokeStyle = colours.mark;
    pen.lineWidth = 2;
    pen.strokeRect(current.left - 1, current.top - 1, current.width + 2, current.height + 2);
  }
  clock.dataset.spans = drawn;
}

function placeOf(span) {
  const scale = watch.width / (watch.to - watch.from);
  return {
    left: (span.start - watch.from) * scale,
    top: watch.tops[span.row] + 2 + span.depth * DEEP,
    width: Math.max(1.5, span.seconds * scale - 0.5),
    height: span.depth ? DEEP - 2 : LANE - 5,
  };
}

function drawSpan(pen, span, { left, top, width, height }) {
  const from = Math.max(0, left);
  const until = Math.min(watch.width, left + width);
  const filled = span.thing !== null && span.thing.kind !== "node" && !span.late;
  pen.fillStyle = span.thing === null ? colours.line
    : span.thing.kind === "copy" ? colours.copy : span.colour;
  pen.globalAlpha = filled ? 1 : 0.35;
  pen.fillRect(from, top, until - from, height);
  pen.globalAlpha = 1;
  if (span.queued) {
    pen.strokeStyle = colours.surface;
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    pen.strokeRect(from + 1.5, top + 1.5, Math.max(0, until - from - 3), height - 3);
    pen.setLineDash([]);
  }
  const letters = Math.floor((until - from - 8) / 6.4);
  if (letters < Math.min(span.label.length, SHORTEST_LABEL)) return;
  pen.fillStyle = filled ? inkOn(rgbOf(span.colour || colours.copy)) : colours.ink;
  pen.textAlign = "left";
  const label = span.label.length <= letters ? span.label : `${span.label.slice(0, letters - 1)}\u2026`;
  pen.fillText(label, from + 4, top + height / 2 + 0.5);
}

// Marks at round times, about every 110 pixels.
function drawAxis(pen) {
  const shown = watch.to - watch.from;
  const wanted = shown / Math.max(1, watch.width / 110);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= wanted) * power;
  pen.fillStyle = colours.soft;
  pen.strokeStyle = colours.edge;
  pen.lineWidth = 1;
  pen.font = "10.5px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (let mark = Math.ceil(watch.from / step); mark * step <= watch.to; mark += 1) {
    const x = Math.round((mark * step - watch.from) / shown * watch.width) + 0.5;
    pen.beginPath();
    pen.moveTo(x, AXIS - 5);
    pen.lineTo(x, watch.height);
    pen.stroke();
    const text = markText(mark * step, step);
    if (x + 3 + pen.measureText(text).width <= watch.width) pen.fillText(text, x + 3, AXIS / 2);
  }
}

function markText(seconds, step) {
  if (seconds === 0) return "0";
  const [unit, size] = step >= 0.1 ? ["s", 1] : step >= 1e-4 ? ["ms", 1e-3] : ["\u00b5s", 1e-6];
  return `${Number((seconds / size).toPrecision(10))} ${unit}`;
}

// ------------------------------------------------------------ hands and keys

// The span under a point, the innermost first; a little beside it counts too.
function spanAt(x, y) {
  let best = null;
  for (const span of watch.track ? watch.track.spans : []) {
    const { left, top, width, height } = placeOf(span);
    if (y < top || y > top + height) continue;
    const away = Math.max(left - x, x - left - width, 0);
    if (away <= 3 && (best === null || away <= best.away)) best = { span, away };
  }
  return best && best.span;
}

function spanText(span) {
  const told = span.thing ? thingText(span.thing) : span.label;
  return `${told}: ${timeText(span.seconds)}${span.queued ? " to hand it to the device" : ""}`
    + `, from ${timeText(span.start)}${span.late ? "; seen late, it may have been earlier" : ""}`;
}

function zoomClock(factor, x = watch.width / 2) {
  const middle = watch.from + x / watch.width * (watch.to - watch.from);
  const length = Math.min(watch.track.end, Math.max(NEAREST_SPAN, (watch.to - watch.from) / factor));
  moveClockTo(middle - x / watch.width * length, length);
}

function moveClockTo(from, length = watch.to - watch.from) {
  watch.from = Math.max(0, Math.min(from, watch.track.end - length));
  watch.to = watch.from + length;
  drawClock();
}

function bringIntoView(span) {
  if (!span || (span.start < watch.to && span.start + span.seconds > watch.from)) return;
  const length = watch.to - watch.from;
  watch.from = Math.max(0, Math.min(span.start - length / 4, watch.track.end - length));
  watch.to = watch.from + length;
}

function stepSpan(by) {
  const spans = watch.track.spans.filter((span) => span.thing);
  if (!spans.length) return;
  const at = spans.findIndex((span) => span.thing === view.selected);
  const next = at < 0 ? (by > 0 ? 0 : spans.length - 1) : (at + by + spans.length) % spans.length;
  openThing(spans[next].thing, watch.go);
  clock.focus();
}

const CLOCK_KEYS = {
  "+": () => zoomClock(1.5),
  "=": () => zoomClock(1.5),
  "-": () => zoomClock(1 / 1.5),
  "0": () => moveClockTo(0, watch.track.end),
  ArrowLeft: () => moveClockTo(watch.from - (watch.to - watch.from) / 8),
  ArrowRight: () => moveClockTo(watch.from + (watch.to - watch.from) / 8),
  n: () => stepSpan(1),
  p: () => stepSpan(-1),
};

function setUpClock() {
  let held = null;
  let travelled = 0;
  clock.addEventListener("pointerdown", (event) => {
    clock.setPointerCapture(event.pointerId);
    held = event.offsetX;
    travelled = 0;
  });
  clock.addEventListener("pointermove", (event) => {
    if (held === null) {
      const span = spanAt(event.offsetX, event.offsetY);
      clock.title = span ? spanText(span) : "";
      return;
    }
    const moved = event.offsetX - held;
    travelled += Math.abs(moved);
    if (travelled < 4) return;
    held = event.offsetX;
    moveClockTo(watch.from - moved / watch.width * (watch.to - watch.from));
  });
  clock.addEventListener("pointerup", (event) => {
    const span = held !== null && travelled < 4 ? spanAt(event.offsetX, event.offsetY) : null;
    held = null;
    if (span && span.thing) openThing(span.thing, watch.go);
  });
  clock.addEventListener("pointercancel", () => { held = null; });
  clock.addEventListener("wheel", (event) => {
    event.preventDefault();
    const amount = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const along = (event.deltaX || event.deltaY) / watch.width * (watch.to - watch.from);
      moveClockTo(watch.from + along);
    } else {
      zoomClock(Math.exp(-amount * 0.0025), event.offsetX);
    }
  }, { passive: false });
  clock.addEventListener("keydown", (event) => {
    const action = event.ctrlKey || event.metaKey || event.altKey ? null : CLOCK_KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  new ResizeObserver(() => {
    if (document.getElementById("clock-room").hidden) return;
    sizeClock();
    drawClock();
  }).observe(document.getElementById("clock-room"));
}
