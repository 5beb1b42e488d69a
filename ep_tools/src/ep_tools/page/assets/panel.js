// What is said beside the picture. Everything from the model is set as text, never as markup.

const panel = document.getElementById("panel");
const MANY = 200;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function swatch(provider) {
  const made = element("span", { className: "swatch", textContent: provider.letter });
  provider.image = provider.image || patternTile(provider).toDataURL();
  made.style.background = `linear-gradient(${provider.colour}, ${provider.colour})`
    + ` center / 13px 14px no-repeat, url(${provider.image})`;
  return made;
}

function row(children, action, current = false) {
  const made = element("button", { type: "button", className: "row" }, ...children);
  if (current) made.setAttribute("aria-current", "true");
  made.addEventListener("click", action);
  return element("li", {}, made);
}

// A list whose end is folded away if it is long.
function list(items, make) {
  const made = element("ul", {});
  const add = (from, until) => items.slice(from, until).forEach((item) => made.append(make(item)));
  add(0, MANY);
  if (items.length > MANY) {
    const more = element("button", {
      type: "button", className: "folded", textContent: `${items.length - MANY} more`,
    });
    more.addEventListener("click", () => { more.remove(); add(MANY, items.length); });
    return element("div", {}, made, more);
  }
  return made;
}

function heading(text) {
  return element("h3", { textContent: text });
}

function facts(pairs) {
  return element("dl", {}, ...pairs.flatMap(([name, content]) => [
    element("dt", { textContent: name }),
    element("dd", {}, content),
  ]));
}

function providerText(index) {
  const provider = data.providers[index];
  return element("span", {}, swatch(provider), ` ${provider.name} (${provider.device})`);
}

// ------------------------------------------------------------ one node

function showBox(box, go) {
  const scope = box.scope;
  if (box.kind !== "node") {
    const value = valueOf(scope, box.value);
    panel.replaceChildren(
      element("h2", { textContent: box.name }),
      element("p", { textContent: `${box.kind} of the ${scope.name ? "body" : "model"}` }),
      element("p", { className: "type", textContent: `${value.type}, ${sizeText(value.bytes)}` }),
      ...neighbours(box.kind === "input" ? "read by" : "made by",
        box.kind === "input" ? box.into : box.from, box, go));
    return;
  }
  const part = box.part === NOTHING ? null : scope.partitions[box.part];
  panel.replaceChildren(
    element("h2", { textContent: box.op }),
    element("p", { className: "muted", textContent: box.name }),
    facts([
      ["runs on", providerText(box.provider)],
      ["why", data.texts[box.reason]],
      ["runner-up", runnerUp(box)],
      ...timeFacts(box),
      ["version", String(box.version)],
    ]),
    ...refusals(box),
    ...(part === null ? [] : [heading("partition"), element("ul", {}, partitionRow(scope, part, go))]),
    ...bodies(box, go),
    ...values("inputs", box.inputs, box.from, scope, go),
    ...values("read by its bodies", box.captures, box.from, scope, go),
    ...values("outputs", box.outputs, [], scope, go),
    ...neighbours("read by", box.into, box, go),
    ...attributes(box));
}

function runnerUp(box) {
  if (box.next === NOTHING) return "none";
  const told = providerText(box.next);
  if (box.difference !== null) {
    const more = `${box.difference < 0 ? "" : "+"}${timeText(box.difference)}`;
    told.append(element("div", { className: "muted", textContent: `${more} if it alone ran there` }));
  }
  return told;
}

function refusals(box) {
  if (!box.refusals.length) return [];
  return [heading("not on"), ...box.refusals.map(([provider, reason]) =>
    element("div", { className: "refusal" }, providerText(provider),
      element("div", { textContent: data.texts[reason] })))];
}

function bodies(box, go) {
  if (!box.bodies.length) return [];
  return [heading("bodies"), element("ul", {}, ...box.bodies.map((inner) =>
    row([`${data.scopes[inner].title}: ${counted(data.scopes[inner].nodes.length, "node")}`],
      () => go.scope(data.scopes[inner]))))];
}

function attributes(box) {
  if (!box.attributes.length) return [];
  return [heading("attributes"), facts(box.attributes)];
}

function values(title, places, links, scope, go) {
  if (!places.length) return [];
  const maker = new Map(links.map((link) => [link.value, scope.boxes[link.source]]));
  return [heading(title), list(places, (place) => {
    if (place === NOTHING) return element("li", { className: "muted", textContent: "left out" });
    const value = valueOf(scope, place);
    const kind = value.constant ? "constant, " : "";
    const lines = [value.name, element("div", {
      className: "type", textContent: `${kind}${value.type}, ${sizeText(value.bytes)}`,
    })];
    const source = maker.get(place);
    return source ? row(lines, () => go.box(source)) : element("li", { className: "row" }, ...lines);
  })];
}

function neighbours(title, links, box, go) {
  const others = [...new Set(links.map((link) =>
    box.scope.boxes[link.source === box.index ? link.target : link.source]))];
  if (!others.length) return [];
  return [heading(title), list(others, (other) => row(
    [...(other.kind === "node" ? [swatch(data.providers[other.provider]), other.op, " "] : []),
      element("span", { className: "muted", textContent: other.name })], () => go.box(other)))];
}

// ------------------------------------------------------------ partitions and copies

function partitionRow(scope, part, go) {
  const provider = data.providers[part.provider];
  return row([swatch(provider), part.name,
    element("div", { className: "muted", textContent: `${provider.name}, ${counted(part.nodes.length, "node")}` }),
    timeLine(part)],
  () => go.partition(part), view.selected === part);
}

function showPartition(scope, part, go) {
  const sizes = (places) => sumText(places.map((place) => valueOf(scope, place).bytes));
  panel.replaceChildren(
    element("h2", { textContent: part.name }),
    facts([
      ["runs on", providerText(part.provider)],
      ["nodes", String(part.nodes.length)],
      ["takes", `${counted(part.inputs.length, "value")}, ${sizes(part.inputs)}`],
      ["gives", `${counted(part.outputs.length, "value")}, ${sizes(part.outputs)}`],
      ["holds", `${counted(part.constants, "constant")}, ${sizeText(part.constantBytes)}`],
      ...timeFacts(part),
      ...(part.cached ? [["compiled", "earlier, and taken from the cache"]] : []),
    ]),
    ...values("inputs", part.inputs, [], scope, go),
    ...values("outputs", part.outputs, [], scope, go),
    heading("nodes"),
    list(part.nodes, (place) => {
      const box = scope.boxes[place];
      return row([box.op, " ", element("span", { className: "muted", textContent: box.name })],
        () => go.box(box));
    }));
}

function showCopy(scope, copy, go) {
  const value = valueOf(scope, copy.value);
  const ends = copy.links.map((place) => scope.links[place]);
  const places = [...new Set(ends.flatMap((link) => [link.source, link.target]))];
  panel.replaceChildren(
    element("h2", { textContent: value.name }),
    facts([
      ["copied from", copy.source],
      ["to", copy.target],
      ["bytes", copy.bytes === null ? "unknown" : `${copy.bytes} (${sizeText(copy.bytes)})`],
      ["type", value.type],
      ...timeFacts(copy),
    ]),
    heading("between"),
    list(places.map((place) => scope.boxes[place]), (box) => row(
      [...(box.kind === "node" ? [swatch(data.providers[box.provider]), box.op, " "] : []),
        element("span", { className: "muted", textContent: box.name })], () => go.box(box))));
}

function showPartitions(scope, go) {
  panel.replaceChildren(
    element("h2", { textContent: "Partitions, in the order they run" }),
    ...sumOfTimes(scope.partitions),
    list(scope.partitions, (part) => partitionRow(scope, part, go)));
}

function showCopies(scope, go) {
  const total = sumText(scope.copies.map((copy) => copy.bytes));
  panel.replaceChildren(
    element("h2", { textContent: "Copies between memories" }),
    element("p", { textContent: scope.copies.length ? `${total} in each run` : "There are none." }),
    ...sumOfTimes(scope.copies),
    list(scope.copies, (copy) => row([valueOf(scope, copy.value).name,
      element("div", { className: "type", textContent: `${sizeText(copy.bytes)}, ${copy.source} to ${copy.target}` }),
      timeLine(copy)],
    () => go.copy(copy), view.selected === copy)));
}

// Nodes that a preferred provider doesn't run, together by provider and reason.
function showRefusals(scope, go) {
  const groups = new Map();
  scope.nodes.forEach((box) => box.refusals.forEach(([provider, reason]) => {
    const key = `${provider} ${reason}`;
    if (!groups.has(key)) groups.set(key, { provider, reason, boxes: [] });
    groups.get(key).boxes.push(box);
  }));
  const sorted = [...groups.values()].sort((a, b) => b.boxes.length - a.boxes.length);
  panel.replaceChildren(
    element("h2", { textContent: "Why not on a provider that is preferred" }),
    element("p", { textContent: sorted.length ? "" : "Every node runs on the first provider." }),
    ...data.refused.map((text) => element("div", { className: "refusal", textContent: text })),
    ...sorted.flatMap((group) => [
      element("div", { className: "refusal" }, providerText(group.provider),
        element("div", { textContent: data.texts[group.reason] })),
      list(group.boxes, (box) => row([box.op, " ",
        element("span", { className: "muted", textContent: box.name })], () => go.box(box)))]));
}
