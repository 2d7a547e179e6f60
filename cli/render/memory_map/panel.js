// Beside the map: classes, what is picked, and the table, of which only the rows in sight exist.

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name === "style") made.style.background = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const swatch = (k) => element("span", { class: "swatch", style: css(paint.classes[k]) });
const isolated = (text) => element("bdi", null, text);

function fillClasses() {
  const sums = data.classes.map(() => ({ count: 0, bytes: 0, peak: 0 }));
  for (let i = 0; i < count; i++) {
    const sum = sums[data.k[i]];
    sum.count++;
    sum.bytes += data.h[i];
    if (atPeak[i] && !data.s[i]) sum.peak += data.h[i];
  }
  const body = $("classes").tBodies[0];
  body.replaceChildren();
  sums.forEach((sum, k) => {
    if (!sum.count) return;
    const shown = !state.off.has(k);
    const name = element("button", { type: "button", "aria-pressed": shown, title: "Show or hide", onclick: () => toggleClass(k) }, swatch(k), data.classes[k]);
    name.style.background = "none";
    name.style.color = "inherit";
    body.append(element("tr", { class: shown ? "" : "off" },
      element("td", null, name), element("td", { class: "n" }, exact(sum.count)),
      element("td", { class: "n" }, bytesText(sum.bytes)), element("td", { class: "n" }, sum.peak ? bytesText(sum.peak) : "–")));
  });
  if (!body.children.length) body.append(element("tr", null, element("td", { class: "empty", colspan: 4 }, "no buffers")));
}

function toggleClass(k) {
  if (!state.off.delete(k)) state.off.add(k);
  fillClasses();
  filterChanged();
}

const LISTED = 12;

function fillDetail() {
  const detail = $("detail");
  detail.replaceChildren(...(state.picked >= 0 ? pickedDetail(state.picked) : peakDetail()));
  detail.scrollTop = 0;
}

function peakDetail() {
  if (data.peak === null) return [element("p", { class: "empty" }, "No dynamic memory: there is no peak to explain.")];
  const live = [];
  for (let i = 0; i < count; i++) if (atPeak[i] && !data.s[i]) live.push(i);
  live.sort((a, b) => data.h[b] - data.h[a]);
  const free = Math.max(data.height - data.peakLive, 0);
  return [
    element("h2", null, `The peak: ${data.unit} `, isolated(timeText(data.peak))),
    facts([["live", `${bytesText(data.peakLive)} in ${exact(live.length)} buffers`], ["free", `${bytesText(free)} inside the arena`]]),
    element("h3", null, "Largest there"),
    list(live.map((i) => [i, bytesText(data.h[i])])),
  ];
}

function pickedDetail(i) {
  const r = firstRect[i], made = [];
  made.push(element("h2", null, swatch(data.k[i]), isolated(data.names[i])));
  const rows = [["class", data.classes[data.k[i]] + (data.s[i] ? ", static" : "")],
    ["bytes", `${exact(data.n[i])} (${bytesText(data.n[i])})` + (data.h[i] !== data.n[i] ? `, holds ${exact(data.h[i])}` : "")],
    ["offset", `${exact(data.o[i])}`]];
  if (r >= 0) rows.push([data.unit === "step" ? "first" : "from", timeText(data.r0[r])], [data.unit === "step" ? "last" : "until", timeText(lastOf(r))]);
  rows.push(["at the peak", atPeak[i] && !data.s[i] ? "yes" : data.s[i] ? "static, on top of the arena" : "no"]);
  made.push(facts(rows));
  if (data.members[i]) made.push(element("h3", null, "One alias class"), element("ul", null, ...data.members[i].map((m) => element("li", null, isolated(m)))));
  if (data.notes[i]) made.push(element("h3", null, "Notes"), element("ul", null, ...data.notes[i].map((n) => element("li", null, isolated(n)))));
  const [before, after] = sharers(i);
  for (const [title, found] of [["Uses its bytes before", before], ["Uses its bytes after", after]]) {
    if (found.length) made.push(element("h3", null, title), list(found));
  }
  if (!before.length && !after.length && !data.s[i]) made.push(element("h3", null, "No other buffer uses its bytes"));
  return made;
}

// Items that use some of the same bytes at other times, the nearest in time first.
function sharers(i) {
  const before = [], after = [], r = firstRect[i];
  if (data.s[i] || r < 0) return [before, after];
  for (let q = 0; q < rects; q++) {
    const j = data.ri[q];
    const shared = Math.min(data.o[i] + data.h[i], data.o[j] + data.h[j]) - Math.max(data.o[i], data.o[j]);
    if (j === i || data.s[j] || shared <= 0) continue;
    if (data.r1[q] <= data.r0[r]) before.push([j, bytesText(shared), data.r0[r] - data.r1[q]]);
    else if (data.r0[q] >= data.r1[r]) after.push([j, bytesText(shared), data.r0[q] - data.r1[r]]);
  }
  for (const found of [before, after]) found.sort((p, q) => p[2] - q[2]);
  return [before, after];
}

function facts(rows) {
  return element("dl", null, ...rows.flatMap(([name, text]) => [element("dt", null, name), element("dd", null, isolated(text))]));
}

function list(found) {
  const rows = found.slice(0, LISTED).map(([i, text]) => element("li", null, swatch(data.k[i]),
    element("button", { type: "button", onclick: () => pick(i, true) }, isolated(data.names[i])), element("span", { class: "n" }, text)));
  if (found.length > LISTED) rows.push(element("li", null, `and ${exact(found.length - LISTED)} more`));
  return element("ul", null, ...rows);
}

const manyClasses = new Set(data.k).size > 1;
const COLUMNS = [
  ["name", (a, b) => (data.names[a] < data.names[b] ? -1 : data.names[a] > data.names[b] ? 1 : 0)],
  ...(manyClasses ? [["class", (a, b) => data.k[a] - data.k[b]]] : []),
  ["bytes", (a, b) => data.n[b] - data.n[a]],
  ["offset", (a, b) => data.s[a] - data.s[b] || data.o[a] - data.o[b]],
  [data.unit === "step" ? "first" : "from", (a, b) => begin(a) - begin(b)],
  [data.unit === "step" ? "last" : "until", (a, b) => finish(a) - finish(b)],
];
const begin = (i) => (firstRect[i] < 0 ? data.start : data.r0[firstRect[i]]);
const finish = (i) => (firstRect[i] < 0 ? data.start : lastOf(firstRect[i]));
const ROW = 22, TALLEST = 8000000; // browsers cut elements much taller than this
const sorting = { column: COLUMNS.findIndex(([name]) => name === "bytes"), reverse: false };
let order = [];

function fillHeads() {
  $("heads").parentElement.classList.toggle("one-class", !manyClasses);
  $("heads").replaceChildren(...COLUMNS.map(([name], c) => {
    const sorted = c !== sorting.column ? "none" : sorting.reverse ? "descending" : "ascending";
    const mark = c === sorting.column ? (sorting.reverse ? " ▴" : " ▾") : "";
    return element("button", { type: "button", class: name === "name" || name === "class" ? "" : "n", "aria-sort": sorted, onclick: () => sortBy(c) }, name + mark);
  }));
}

function sortBy(column) {
  sorting.reverse = column === sorting.column && !sorting.reverse;
  sorting.column = column;
  fillHeads();
  fillTable();
}

function fillTable() {
  order = [];
  for (let i = 0; i < count; i++) if (!kept || kept[i]) order.push(i);
  const compare = COLUMNS[sorting.column][1], sign = sorting.reverse ? -1 : 1;
  order.sort((a, b) => sign * compare(a, b) || a - b);
  $("space").style.height = Math.min(order.length * ROW, TALLEST) + "px";
  $("found").textContent = kept ? `${exact(order.length)} of ${exact(count)}` : `${exact(count)} buffers`;
  $("rows").scrollTop = 0;
  $("heads").style.paddingRight = 12 + $("rows").offsetWidth - $("rows").clientWidth + "px";
  drawRows();
}

// First row in sight; a table taller than a browser allows scrolls faster than its rows.
function topRow() {
  const rows = $("rows"), seen = rows.clientHeight / ROW;
  const reach = Math.max(Math.min(order.length * ROW, TALLEST) - rows.clientHeight, 1);
  return Math.max(Math.floor((rows.scrollTop / reach) * (order.length - seen)), 0);
}

function drawRows() {
  const rows = $("rows"), wanted = Math.ceil(rows.clientHeight / ROW) + 1;
  const start = Math.max(Math.min(topRow(), order.length - wanted + 1), 0);
  $("window").style.top = rows.scrollTop + "px";
  if (!order.length) {
    $("window").replaceChildren(element("div", { class: "empty" }, count ? "Nothing matches." : "There are no buffers."));
    return;
  }
  $("window").replaceChildren(...order.slice(start, start + wanted).map((i) => element("div", { class: "row" + (i === state.picked ? " picked" : ""), role: "row", title: data.names[i], onclick: () => pick(i, true) },
    element("span", { class: "name" }, swatch(data.k[i]), isolated(data.names[i])),
    manyClasses ? element("span", null, data.classes[data.k[i]]) : null,
    element("span", { class: "n", title: exact(data.n[i]) }, bytesText(data.n[i])),
    element("span", { class: "n", title: exact(data.o[i]) }, bytesText(data.o[i])), element("span", { class: "n" }, exact(begin(i))), element("span", { class: "n" }, exact(finish(i))))));
}

function showRow(i) {
  const at = order.indexOf(i), rows = $("rows"), seen = rows.clientHeight / ROW;
  if (at < 0 || (at >= topRow() && at < topRow() + seen - 1)) return;
  const reach = Math.min(order.length * ROW, TALLEST) - rows.clientHeight;
  rows.scrollTop = (Math.max(at - seen / 2, 0) / Math.max(order.length - seen, 1)) * reach;
}
