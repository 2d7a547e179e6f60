"use strict";
// What all parts of the page share: the data, what is in view, what is picked, units and colours.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const count = data.names.length;
const rects = data.ri.length;
const ground = { x0: data.start, x1: data.end, y0: 0, y1: Math.max(data.height, 1) };
const state = {
  view: { ...ground },
  picked: -1, hovered: -1, hoverTime: null,
  off: new Set(), // classes that are switched off
  words: "", atPeak: false, showStatic: data.height === 0 && data.static > 0, colour: new Set(data.k).size > 1 ? "class" : "size", // one class alone would be one colour
};

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function bytesText(n) {
  let unit = 0, value = n;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit++; }
  return (Number.isInteger(value) ? value : value.toFixed(value < 100 ? 2 : 1)) + " " + UNITS[unit];
}

const exact = (n) => n.toLocaleString("en-US");

function timeText(t) {
  const name = data.steps[t];
  return name === undefined ? exact(t) : exact(t) + " " + name;
}

// Half-open in the data; steps are counted inclusively, as the reports do.
const lastOf = (r) => (data.unit === "step" ? data.r1[r] - 1 : data.r1[r]);
const peakTime = () => data.peak + (data.unit === "step" ? 0.5 : 0);
const full = () => ({ ...ground, y1: Math.max(ground.y1 * (data.height ? 1 : 0) + (state.showStatic ? data.static : 0), 1) });
const baseOf = (i) => data.o[i] + (data.s[i] ? data.height : 0);

// First rectangle of each item, for jumping from the table to the map.
const firstRect = new Int32Array(count).fill(-1);
for (let r = rects - 1; r >= 0; r--) firstRect[data.ri[r]] = r;

// Items whose bytes are taken at the peak.
const atPeak = new Uint8Array(count);
if (data.peak !== null) {
  for (let r = 0; r < rects; r++) {
    if (data.r0[r] <= data.peak && data.peak < data.r1[r]) atPeak[data.ri[r]] = 1;
  }
}

let lowered = null;
function searchable(i) {
  if (!lowered) lowered = data.names.map((name, k) => [name, ...(data.members[k] || [])].join("\n").toLowerCase());
  return lowered[i];
}

// Which items the search, the classes and the peak box leave; null where nothing is filtered.
let kept = null;
function refilter() {
  const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length && !state.atPeak && !state.off.size) { kept = null; return; }
  kept = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    if (state.off.has(data.k[i]) || (state.atPeak && !atPeak[i])) continue;
    kept[i] = words.every((word) => searchable(i).includes(word)) ? 1 : 0;
  }
}

function dark() {
  const asked = document.documentElement.dataset.theme;
  return asked === "dark";
}

const paint = {}; // CSS colours by name, read again when the theme changes
function readPaint() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "plot", "line", "grid", "ink", "soft", "accent", "peak", "bound", "live", "pick"]) {
    paint[name] = style.getPropertyValue("--" + name).trim();
  }
  paint.classes = (dark() ? data.dark : data.light).map(rgb);
}

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// From small to large: dark violet, blue, green, yellow.
const RAMP = [[72, 60, 130], [54, 100, 150], [35, 140, 140], [70, 175, 110], [190, 205, 60]];
function ramp(share) {
  const at = Math.min(Math.max(share, 0), 0.9999) * (RAMP.length - 1), k = Math.floor(at);
  return RAMP[k].map((low, c) => low + (RAMP[k + 1][c] - low) * (at - k));
}

const logs = { size: scaleOf(data.n), life: scaleOf(data.r0.map((t, r) => data.r1[r] - t)) };
function scaleOf(values) {
  let low = Infinity, high = 1;
  for (const v of values) { if (v > 0 && v < low) low = v; if (v > high) high = v; }
  return { low: Math.log(low === Infinity ? 1 : low), high: Math.log(high) };
}
function shareOf(value, scale) {
  return scale.high > scale.low ? (Math.log(Math.max(value, 1)) - scale.low) / (scale.high - scale.low) : 0.5;
}

// The colour of a rectangle; neighbours of one class differ a little, so that their border shows without a line.
function colourOf(r) {
  const i = data.ri[r];
  if (state.colour === "size") return ramp(shareOf(data.n[i], logs.size));
  if (state.colour === "life") return ramp(shareOf(data.r1[r] - data.r0[r], logs.life));
  const shade = 0.86 + (((i * 2654435761) >>> 16) % 29) / 100;
  return paint.classes[data.k[i]].map((c) => Math.min(c * shade, 255));
}
const css = (c) => `rgb(${c.map(Math.round).join(",")})`;
