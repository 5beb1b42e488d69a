// Colours of nodes by the time they take, on a scale of tenfold steps.

const HEAT = {
  light: [[253, 219, 178], [250, 160, 100], [215, 48, 31], [127, 0, 0]],
  dark: [[62, 46, 38], [127, 39, 4], [241, 105, 19], [255, 224, 160]],
};
const DECADES = 3;

const heat = {
  by: "provider",       // or "predicted", "measured"
  longest: 0,
};

function heatValue(box) {
  return heat.by === "measured" ? measuredOf(box) : box.seconds;
}

// Which colourings there is data for.
function heatChoices() {
  const nodes = data.scopes.flatMap((scope) => scope.nodes);
  return ["provider",
    ...(nodes.some((box) => box.seconds !== null) ? ["predicted"] : []),
    ...(nodes.some((box) => measuredOf(box) !== null) ? ["measured"] : [])];
}

function setHeat(by) {
  heat.by = by;
  heat.longest = 0;
  data.scopes.forEach((scope) => scope.nodes.forEach((box) => {
    heat.longest = Math.max(heat.longest, by === "provider" ? 0 : heatValue(box) || 0);
  }));
}

// The colour as three numbers; null where nothing is known of the node.
function heatColour(box) {
  const seconds = heatValue(box);
  if (seconds === null || !heat.longest) return null;
  const part = 1 + Math.log10(Math.max(seconds, 1e-12) / heat.longest) / DECADES;
  return heatAt(Math.min(1, Math.max(0, part)));
}

function heatAt(part) {
  const stops = HEAT[document.documentElement.dataset.theme === "dark" ? "dark" : "light"];
  const at = part * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  return stops[low].map((from, i) => Math.round(from + (stops[low + 1][i] - from) * (at - low)));
}

function cssColour([red, green, blue]) {
  return `rgb(${red}, ${green}, ${blue})`;
}

// The three numbers of a colour such as #0072b2.
function rgbOf(text) {
  return [1, 3, 5].map((from) => parseInt(text.slice(from, from + 2), 16));
}

// Black or white, whichever can be read on a colour.
function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#111111" : "#ffffff";
}

// What stands in the legend: a bar from a thousandth of the longest time to the longest.
function heatLegend() {
  const bar = element("span", { className: "scale" });
  const stops = [0, 0.25, 0.5, 0.75, 1].map((part) => cssColour(heatAt(part)));
  bar.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
  return element("li", {}, `${timeText(heat.longest / 10 ** DECADES)} or less`, bar,
    `${timeText(heat.longest)} ${heat.by}, each node`);
}
