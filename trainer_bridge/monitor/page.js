// Texts of the report (names of files, messages) reach the document only by textContent, so they cannot add elements.
"use strict";
const element = id => document.getElementById(id);
const count = number => number.toLocaleString("en-US");
const percent = share => (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %";
const scaled = (value, base, units) => {
  let unit = 0;
  while (value >= base * 0.9995 && unit + 1 < units.length) { value /= base; unit++; }
  return value.toFixed(unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + units[unit];
};
const bytes = value => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
const rate = value => (value < 10 ? value.toFixed(1) : scaled(value, 1000, ["", " k", " M", " G"])) + "/s";
const time = us => us < 1000 ? us.toFixed(1) + " us" : us < 1e6 ? (us / 1e3).toFixed(1) + " ms" : (us / 1e6).toFixed(1) + " s";
const duration = s => s < 60 ? s.toFixed(0) + " s" : s < 3600 ? Math.floor(s / 60) + ":" + String(Math.floor(s % 60)).padStart(2, "0") + " min" :
  Math.floor(s / 3600) + ":" + String(Math.floor(s % 3600 / 60)).padStart(2, "0") + " h";
function add(parent, tag, text, attributes = {}) {
  const child = document.createElement(tag);
  child.textContent = text;
  for (const [name, value] of Object.entries(attributes)) child.setAttribute(name, value);
  return parent.appendChild(child);
}
function setText(node, text) { if (node.textContent !== text) node.textContent = text; }

// Returns the box of a stage, or of next(), in the drawing of the pipeline. Makes the box if there is none yet.
function boxFor(name) {
  for (const box of element("stages").children) if (box.dataset.stage === name) return box;
  const box = add(element("stages"), "li", "", {"data-stage": name});
  add(box, "h3", name);
  add(box, "meter", "", {min: 0, max: 1, value: 0, "aria-label": name === "next()" ? "share of the time that next() waited" : "busy share of " + name});
  const list = add(box, "dl", "", {class: "tiny"});
  for (const key of name === "next()" ? ["waits", "ready", "rate"] : ["busy", "queue", "rate"]) {
    add(list, "dt", key);
    add(list, "dd", "", {"data-key": key});
  }
  return box;
}
function fill(box, share, values) {
  box.querySelector("meter").value = share;
  for (const [key, text] of Object.entries(values)) setText(box.querySelector(`[data-key="${key}"]`), text);
}
// The counters of the report: the name, the unit and the meaning of each.
const counters = JSON.parse(document.getElementById("counters").textContent);
let before = null;
function drawStages(report, now) {
  const anew = !before || report.wall_s < before.report.wall_s || report.steps < before.report.steps;
  const seconds = anew ? report.wall_s || 1 : Math.max(now - before.now, 1e-3);
  const names = [...report.stages.map(stage => stage.name), "next()"];
  for (const box of [...element("stages").children]) if (!names.includes(box.dataset.stage)) box.remove();
  for (const [i, stage] of report.stages.entries()) {
    const old = !anew && before.report.stages[i]?.name === stage.name ? before.report.stages[i] : {busy_s: 0, messages: 0};
    const own = /^(upload|copy|transfer)/.test(stage.name) || report.threads === 0;
    const share = Math.min(Math.max((stage.busy_s - old.busy_s) / (seconds * (own ? 1 : report.threads)), 0), 1);
    const box = boxFor(stage.name);
    // The stages of several replicas work in parallel, so they are drawn side by side.
    box.classList.toggle("beside", i > 0 && report.stages[i - 1].name.split(" ")[0] === stage.name.split(" ")[0]);
    box.classList.toggle("waited", report.waited_for !== "" && stage.name.split(" ")[0] === report.waited_for);
    fill(box, share, {busy: percent(share), queue: count(stage.queue), rate: rate((stage.messages - old.messages) / seconds)});
  }
  const box = boxFor("next()");
  element("stages").append(box);  // moves the box of next() to the end
  const row = intervals.at(-1);
  fill(box, row ? row[5] : report.next_wait_ratio, {
    waits: percent(row ? row[5] : report.next_wait_ratio),
    ready: row && row[6] !== null ? percent(row[6]) : percent(report.data_readiness_ratio),
    rate: rate(row ? row[3] / row[1] : 0)});
  before = {report, now};
}

// The rows of /history.json that have been loaded.
const intervals = [];
let nextRow = 0;
const charts = [
  {title: "samples", text: rate, of: [row => row[2] / row[1]]},
  {title: "files read", text: value => bytes(value) + "/s", of: [row => row[4] / row[1]]},
  {title: "time that next() waited", text: percent, of: [row => row[5]]},
  {title: "next()", text: time, names: ["p50", "p99"], of: [row => row[7], row => row[8]]},
];
const svg = "http://www.w3.org/2000/svg";
for (const chart of charts) {
  const figure = add(element("charts"), "figure", "", {"data-chart": chart.title});
  chart.caption = add(figure, "figcaption", chart.title);
  chart.drawing = figure.appendChild(document.createElementNS(svg, "svg"));
  chart.drawing.setAttribute("viewBox", "0 0 600 100");
  chart.drawing.setAttribute("preserveAspectRatio", "none");
  chart.drawing.setAttribute("role", "img");
  chart.lines = chart.of.map((_, i) => {
    const line = chart.drawing.appendChild(document.createElementNS(svg, "polyline"));
    if (i > 0) line.setAttribute("class", "second");
    return line;
  });
}
function drawCharts() {
  const latest = intervals.at(-1);
  if (!latest) return;
  for (const chart of charts) {
    const values = chart.of.map(value => intervals.map(value));
    const most = Math.max(...values.flat().filter(value => value !== null), 1e-9);
    const step = 600 / (Math.max(intervals.length, 60) - 1);
    values.forEach((line, i) => chart.lines[i].setAttribute("points", line.flatMap((value, at) => value === null ? [] :
      [(600 - step * (intervals.length - 1 - at)).toFixed(1) + "," + (98 - 96 * value / most).toFixed(1)]).join(" ")));
    const now = chart.of.map((value, i) => (chart.names ? chart.names[i] + " " : "") +
      (value(latest) === null ? "-" : chart.text(value(latest)))).join(", ");
    setText(chart.caption, `${chart.title}: ${now}; at most ${chart.text(most)} in ${duration(latest[0] - intervals[0][0] + intervals[0][1])}`);
    chart.drawing.setAttribute("aria-label", chart.caption.textContent);
  }
}

function drawNumbers(report, system) {
  const audit = report.epoch_audit;
  const rows = [
    ...counters.map(({name, unit, help}) => [name, name.replaceAll("_", " "), unit === "bytes" ? bytes(report[name]) :
      unit === "ratio" ? percent(report[name]) : report[name] < 0 ? "not known" : count(report[name]), help]),
    ...Object.entries(report.waited_s).map(([stage, s]) => ["waited-" + stage, "waited for " + stage, s.toFixed(1) + " s"]),
    ["next_us", "next()", `p50 ${time(report.next_us.p50)}, p99 ${time(report.next_us.p99)}, at most ${time(report.next_us.max)}`],
    ["epoch_audit", "audit", !audit ? "no epoch has ended yet" : `epoch ${audit.epoch}: ` + (audit.holds === null ? "not known: " + audit.why :
      audit.holds ? "every sample came once" : "differs from the data" + (audit.why ? ": " + audit.why : ""))],
    ["cache_share", "cache share", report.cache_share === null ? "no cache" : percent(report.cache_share)],
    ["distribute_mode", "distribute mode", report.distribute_mode],
    ["start", "start", `counting ${report.count_s.toFixed(1)} s, first batch after ${report.first_batch_s.toFixed(1)} s`],
    ["backend", "reads with", report.backend],
    ["memory", "memory of the process", bytes(system.own_memory_bytes)],
  ];
  fillTable(element("numbers").tBodies[0], rows);
}
function fillTable(body, rows) {
  const wanted = rows.map(row => row[0]);
  for (const row of [...body.rows]) if (!wanted.includes(row.dataset.key)) row.remove();
  for (const [key, name, value, meaning] of rows) {
    let row = [...body.rows].find(row => row.dataset.key === key);
    if (!row) {
      row = add(body, "tr", "", {"data-key": key});
      add(row, "th", name, {scope: "row", title: meaning ?? ""});
      add(row, "td", "");
    }
    setText(row.cells[1], value);
  }
}

// Gives a table `count` rows of `cells` cells each, and keeps the rows that it has already. Returns all rows.
function rowsIn(body, count, cells) {
  while (body.rows.length > count) body.rows[body.rows.length - 1].remove();
  while (body.rows.length < count) {
    const row = add(body, "tr", "");
    for (let cell = 0; cell < cells; cell++) add(row, "td", "");
  }
  return [...body.rows];
}

// Returns the rate of a rank between its last two reports, which need not be a second apart.
const rankRates = new Map();
function rankRate(rank, report) {
  const known = rankRates.get(rank);
  if (known && report.wall_s === known.wall_s) return known.rate;
  const goesOn = known && report.wall_s > known.wall_s && report.records >= known.records;
  const value = goesOn ? (report.records - known.records) / (report.wall_s - known.wall_s) : report.wall_s > 0 ? report.records / report.wall_s : 0;
  rankRates.set(rank, {records: report.records, wall_s: report.wall_s, rate: value});
  return value;
}
// Returns the address of a rank's monitor for this browser. Rank 0 may know a rank on its own machine by a loopback
// address, which on the machine of the browser means that machine itself.
function placeOf(address) {
  const place = new URL(address);
  if (/^(127\.|\[::1\]$|localhost$)/.test(place.hostname)) place.hostname = location.hostname;
  return place.href;
}
function drawRanks(report, others) {
  element("ranks").hidden = others.length === 0;
  const all = [{rank: report.rank, address: null, report, trouble: null}, ...others].sort((a, b) => a.rank - b.rank);
  for (const [i, row] of rowsIn(element("ranks").querySelector("tbody"), all.length, 6).entries()) {
    const one = all[i];
    const link = row.cells[0].querySelector("a") ?? add(row.cells[0], "a", "");
    setText(link, String(one.rank));
    if (one.address?.startsWith("http://")) link.href = placeOf(one.address); else link.removeAttribute("href");
    const known = one.report;
    const values = known ? [
      `epoch ${count(known.epoch)}, step ${count(known.step)}`, rate(rankRate(one.rank, known)), percent(known.next_wait_ratio),
      count(known.bad_records), known.error ? "ended: " + known.error.message : known.verdict] : ["", "", "", "", one.trouble];
    values.forEach((value, cell) => setText(row.cells[cell + 1], value));
    row.classList.toggle("bad", !known || known.error !== null || known.differing_epochs > 0);
  }
}

function drawGpus(gpus) {
  element("gpus").hidden = gpus.length === 0;
  for (const [i, row] of rowsIn(element("gpus").querySelector("tbody"), gpus.length, 4).entries()) {
    const gpu = gpus[i];
    setText(row.cells[0], `${i}: ${gpu.name}`);
    row.cells[0].title = gpu.uuid;
    setText(row.cells[1], gpu.busy === null ? "not known" : percent(gpu.busy));
    setText(row.cells[2], `${bytes(gpu.memory_used)} of ${bytes(gpu.memory_bytes)}`);
    setText(row.cells[3], gpu.pcie_lanes === 0 ? "not known"
      : `PCIe ${gpu.pcie_generation}, ${gpu.pcie_lanes} of ${gpu.pcie_most_lanes} lanes`);
  }
}

// Draws a sample of a batch: its first pictures, and histograms of its numbers.
let shownSample = "";
function drawSample(sample) {
  element("sample").hidden = sample === null || sample.outputs.length === 0;
  if (sample === null) return;
  const which = `epoch ${count(sample.epoch)}, step ${count(sample.step)}, replica ${count(sample.replica)}`;
  if (which === shownSample) return;
  shownSample = which;
  setText(element("sample").querySelector("span"), which);
  const strip = element("sample").querySelector("div");
  strip.replaceChildren();
  for (const output of sample.outputs) {
    const figure = add(strip, "figure", "", {"data-output": output.name});
    if (output.pictures) drawPictures(figure, output); else drawHistogram(figure, output);
  }
}
function drawPictures(figure, output) {
  add(figure, "figcaption", output.name);
  for (const [i, picture] of output.pictures.entries()) {
    const canvas = add(figure, "canvas", "", {width: picture.width, height: picture.height, role: "img", "aria-label": `${output.name}, picture ${i}`});
    const rgb = atob(picture.rgb), image = new ImageData(picture.width, picture.height);
    for (let pixel = 0; pixel < picture.width * picture.height; pixel++) {
      for (let colour = 0; colour < 3; colour++) image.data[4 * pixel + colour] = rgb.charCodeAt(3 * pixel + colour);
      image.data[4 * pixel + 3] = 255;
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
}
function drawHistogram(figure, output) {
  const numbers = output.numbers.filter(number => number !== null);
  const least = Math.min(...numbers), most = Math.max(...numbers), odd = output.numbers.length - numbers.length;
  const caption = (numbers.length === 0 ? `${output.name}: no number` : `${output.name}: ${count(numbers.length)} from ${+least.toPrecision(4)} to ${+most.toPrecision(4)}, mean ` +
    +(numbers.reduce((sum, number) => sum + number, 0) / numbers.length).toPrecision(4)) + (odd > 0 ? `; ${count(odd)} not finite` : "");
  add(figure, "figcaption", caption);
  const bars = Array.from({length: 32}, () => 0);
  for (const number of numbers) bars[Math.min(bars.length - 1, Math.floor((number - least) / (most - least || 1) * bars.length))]++;
  const drawing = figure.appendChild(document.createElementNS(svg, "svg"));
  for (const [name, value] of Object.entries({viewBox: `0 0 ${bars.length} 100`, preserveAspectRatio: "none", role: "img", "aria-label": caption}))
    drawing.setAttribute(name, value);
  const highest = Math.max(...bars, 1);
  for (const [i, bar] of bars.entries()) {
    const box = drawing.appendChild(document.createElementNS(svg, "rect"));
    for (const [name, value] of Object.entries({x: i + 0.05, width: 0.9, y: 100 - 98 * bar / highest, height: 98 * bar / highest})) box.setAttribute(name, value);
    box.dataset.count = bar;
  }
}

let shownErrors = -1;
function drawErrors(report) {
  if (report.bad_records + report.errors.length === shownErrors) return;
  shownErrors = report.bad_records + report.errors.length;
  element("no-errors").hidden = shownErrors > 0;
  element("errors").hidden = shownErrors === 0;
  const body = element("errors").querySelector("tbody");
  body.replaceChildren();
  for (const error of report.errors) {
    const row = add(body, "tr", "");
    for (const key of ["category", "file", "record", "feature", "message"]) add(row, "td", error[key] === null ? "" : String(error[key]));
  }
  const more = report.bad_records - report.errors.length;
  setText(element("more-errors"), more > 0 ? `and ${count(more)} more` : "");
}

function drawHead(report) {
  setText(element("verdict"), report.verdict);
  const failed = report.error !== null;
  element("failure").hidden = !failed;
  if (failed) setText(element("failure"), [report.error.file, report.error.message].filter(Boolean).join(": "));
  setText(element("state"), failed ? "ended" : "live");
  element("state").classList.toggle("bad", failed);
  const known = report.epoch_steps >= 0;
  let where = `epoch ${count(report.epoch)}, step ${count(report.step)}` + (known ? ` of ${count(report.epoch_steps)}` : "");
  const recent = intervals.slice(-60);
  const steps = recent.reduce((sum, row) => sum + row[3], 0), seconds = recent.reduce((sum, row) => sum + row[1], 0);
  if (known && steps > 0 && !failed) where += `, ${duration((report.epoch_steps - report.step) * seconds / steps)} left of the epoch`;
  if (report.world_size > 1) where += `, rank ${report.rank} of ${report.world_size}`;
  if (report.replicas > 1) where += `, ${report.replicas} replicas`;
  setText(element("where"), where);
  document.title = `feedline${report.world_size > 1 ? " rank " + report.rank : ""}: ${failed ? "ended" : "step " + count(report.step)}`;
  element("progress").hidden = !known;
  if (known) { element("progress").max = report.epoch_steps || 1; element("progress").value = report.step; }
}

async function load(path) {
  const response = await fetch(location.origin + "/" + path, {signal: AbortSignal.timeout(5000)});
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response;
}
let looks = 0;
async function look() {
  try {
    const report = await (await load("report.json")).json();
    const now = performance.now() / 1000;
    const rows = await (await load("history.json?from=" + nextRow)).json();
    const anew = rows.next < nextRow;  // another feed has begun at this address
    if (anew) intervals.length = 0;
    nextRow = anew ? 0 : rows.next;
    intervals.push(...rows.rows);
    intervals.splice(0, intervals.length - 600);
    drawHead(report);
    drawStages(report, now);
    drawCharts();
    if (report.world_size > 1) drawRanks(report, await (await load("ranks.json")).json());
    const system = await (await load("system.json")).json();
    drawNumbers(report, system);
    drawGpus(system.gpus);
    // The first of two requests asks the feeder to copy a part of its next batch, and the second one returns the copy.
    if (looks++ % 5 < 2 || shownSample === "") drawSample(await (await load("sample.json")).json());
    drawErrors(report);
    fillTable(element("outputs").tBodies[0], Object.entries(report.outputs).map(([name, made]) => [name, name, made]));
    document.body.dataset.steps = report.steps;
  } catch (error) {
    console.error(error);
    setText(element("state"), "no connection: the program has ended or does not answer");
    element("state").classList.add("bad");
  }
}
element("plan").addEventListener("toggle", async () => {
  if (element("plan").open) setText(element("plan").querySelector("pre"), await (await load("plan.txt")).text());
});
async function watch() {
  if (!document.hidden) await look();
  setTimeout(watch, 1000);
}
watch();
