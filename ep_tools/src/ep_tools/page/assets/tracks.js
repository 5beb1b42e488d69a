// Times as spans in rows, for the clock: a row has one span at a time, with others inside it.

// {row, start, seconds, thing, label, colour, depth, queued, late}; a thing is a partition, copy or node.

// What is predicted for a graph, one step after the other; null where costs aren't known.
function predictedTrack(scope) {
  if (scope.track !== undefined) return scope.track;
  scope.track = null;  // until it is known, also for a body inside itself
  const used = new Set(scope.steps.map(([kind, place]) => laneOf(scope, kind, place)));
  const lanes = [...data.providers.keys(), "copies"].filter((lane) => used.has(lane));
  const spans = [];
  let now = 0;
  for (const [kind, place] of scope.steps) {
    const thing = stepTarget(scope, kind, place);
    const row = lanes.indexOf(laneOf(scope, kind, place));
    const seconds = kind === "node" ? bodySeconds(thing) : thing.seconds;
    if (seconds === null) return null;
    spans.push({ row, start: now, seconds, thing, depth: 0, queued: false });
    if (kind === "partition") spans.push(...nodeSpans(scope, thing, row, now));
    now += seconds;
  }
  scope.track = finished(lanes.map((lane) => (lane === "copies" ? lane : data.providers[lane].name)),
    spans, now);
  return scope.track;
}

function bodySeconds(box) {
  return box.bodies.reduce((sum, inner) => {
    const track = predictedTrack(data.scopes[inner]);
    return sum === null || track === null ? null : sum + track.seconds;
  }, 0);
}

// Nodes of a partition after what its start takes.
function nodeSpans(scope, part, row, start) {
  const boxes = part.nodes.map((place) => scope.boxes[place]);
  if (boxes.some((box) => box.seconds === null)) return [];
  let now = start + Math.max(0, part.seconds - boxes.reduce((sum, box) => sum + box.seconds, 0));
  return boxes.map((box) => {
    const span = { row, start: now, seconds: box.seconds, thing: box, depth: 1, queued: false };
    now += box.seconds;
    return span;
  });
}

// The run that was kept of a trace.
function measuredTrack() {
  if (data.track) return data.track;
  const open = [];
  const spans = data.timeline.spans.map(([row, start, length, kind, ...rest]) => {
    const span = { row, start: start / 1e6, seconds: length / 1e6, thing: null, label: "" };
    if (kind === "other") {
      span.label = rest[0];
      span.queued = rest[1] === 1;
    } else {
      const scope = data.scopes[rest[0]];
      span.thing = stepTarget(scope, kind, rest[1]);
      span.queued = rest[2] === 1;
      span.late = rest[2] === 2;
    }
    const around = open[row] || (open[row] = []);
    while (around.length && around[around.length - 1] <= start + 1e-3) around.pop();
    span.depth = around.length;
    around.push(start + length);
    return span;
  });
  data.track = finished(data.timeline.rows, spans, data.times.measured.seconds);
  return data.track;
}

function finished(names, spans, seconds) {
  const rows = names.map((text) => ({ text, depth: 0 }));
  spans.forEach((span) => {
    rows[span.row].depth = Math.max(rows[span.row].depth, span.depth);
    span.colour = spanColour(span.thing);
    span.label = span.thing ? spanLabel(span.thing) : span.label;
  });
  const end = spans.reduce((last, span) => Math.max(last, span.start + span.seconds), 0);
  return { rows, spans, seconds, end: Math.max(end, 1e-9) };
}

function spanColour(thing) {
  if (thing === null || thing.kind === "copy") return null;
  return data.providers[thing.provider].colour;
}

function spanLabel(thing) {
  if (thing.kind === "copy") return valueOf(thing.scope, thing.value).name;
  return thing.kind === "partition" ? thing.name : thing.op;
}
