// Charts: what charts.py left as numbers is drawn here as SVG, and zoomed, smoothed, read and saved without the server.
// Text is only ever put in as textContent. Settings are kept while the server redraws the page under them.
(() => {
  const MOST_NAMED = 8; // curves in a legend: then colours begin again
  const AXES = { steps: "env steps", time: "time", episodes: "episodes" };
  const settings = { axis: "steps", smooth: 0, log: false }, zooms = {};
  const zoomKey = (board) => `${board.dataset.name} ${settings.axis}`; // a stretch of one run means nothing in another
  const svgNode = (name, attributes = {}, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const make = (name, cls, text) => {
    const node = document.createElement(name);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const three = (x) => String(Number(x.toPrecision(3)));
  function short(x) {
    const [size, letter] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([each]) => Math.abs(x) >= each) || [1, ""];
    const part = x / size;
    return Math.abs(part) >= 1e4 || (x && Math.abs(x) < 1e-3) ? part.toExponential(Math.abs(part) >= 1e4 ? 2 : 0) : three(part) + letter;
  }
  const clock = (s) => (s >= 3600 ? `${three(s / 3600)} h` : s >= 60 ? `${three(s / 60)} min` : `${three(s)} s`);
  const along = (x) => (settings.axis === "time" ? clock(x) : short(x));
  const value = (x) => (x && Math.abs(x) < 1e-3 ? x.toExponential(2) : Number(x.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 4 }));

  function ticks(low, high, count) {
    if (!(high > low)) {
      const half = Math.max(Math.abs(low) * 0.1, 1);
      [low, high] = [low - half, high + half];
    }
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999) || raw;
    const first = Math.floor(low / step + 1e-9), last = Math.min(Math.ceil(high / step - 1e-9), first + 20);
    return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
  }

  function between(x, xs, ys) { // linear, and the ends beyond them
    let low = 0, high = xs.length - 1;
    if (x <= xs[0]) return ys[0];
    if (x >= xs[high]) return ys[high];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle;
    }
    return xs[high] === xs[low] ? ys[high] : ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
  }

  function placed(line, clocks) { // its xs on the axis that is chosen, null where nobody wrote them down
    if (line.axis) return line.axis === settings.axis ? line.x : null;
    if (settings.axis === "steps") return line.x;
    const told = clocks[line.run || ""];
    return told && told[settings.axis] ? line.x.map((x) => between(x, told.steps, told[settings.axis])) : null;
  }

  function smoothed(ys, weight) { // an exponential mean that begins without a bias towards zero
    let mean = 0, mass = 0;
    return ys.map((y) => {
      mean = weight * mean + (1 - weight) * y;
      mass = weight * mass + (1 - weight);
      return mean / mass;
    });
  }

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.source = figure.dataset.chart;
      this.data = JSON.parse(this.source);
      this.board = figure.closest(".board");
      this.clocks = JSON.parse(this.board.dataset.clocks);
      const head = make("figcaption", "chart-head"), name = make("span", "chart-name", this.data.title);
      this.said = make("span", "chart-said");
      const save = make("select", "chart-save");
      save.setAttribute("aria-label", `save ${this.data.title}`);
      save.append(new Option("save", ""), new Option("CSV", "csv"), new Option("SVG", "svg"), new Option("PNG", "png"));
      save.addEventListener("change", () => { this.save(save.value); save.value = ""; });
      head.append(name, this.said, save);
      this.keys = make("div", "legend");
      this.svg = svgNode("svg", { role: "img", "aria-label": this.data.title });
      figure.replaceChildren(head, ...(this.data.small ? [] : [this.keys]), this.svg);
      this.listen();
      const watch = new ResizeObserver(() => (this.svg.parentNode === figure ? this.draw() : watch.disconnect()));
      watch.observe(figure);
    }

    lines() {
      const [from, to] = zooms[zoomKey(this.board)] || [-Infinity, Infinity];
      return this.data.lines.map((line) => {
        const xs = placed(line, this.clocks);
        if (!xs) return null;
        const keep = xs.map((_, i) => i).filter((i) => (xs[i] >= from || xs[i + 1] >= from) && (xs[i] <= to || xs[i - 1] <= to) && (!settings.log || line.y[i] > 0));
        const ys = settings.smooth && !line.lo ? smoothed(line.y, settings.smooth) : line.y, pick = (list) => keep.map((i) => list[i]);
        return { ...line, x: pick(xs), y: pick(ys), raw: ys === line.y ? null : pick(line.y), lo: line.lo && pick(line.lo), hi: line.hi && pick(line.hi) };
      }).filter((line) => line && line.x.length);
    }

    draw() {
      const { svg, data } = this, width = Math.round(this.figure.clientWidth), small = data.small;
      if (!width) return;
      const height = small ? 128 : width < 600 ? 240 : 300, edge = { left: 46, right: 12, top: 8, bottom: 20 };
      const lines = this.shown = this.lines(), zoom = zooms[zoomKey(this.board)], flat = (key) => lines.flatMap((line) => line[key] || []);
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      svg.replaceChildren();
      this.legend(lines);
      this.said.textContent = "";
      if (!lines.length) {
        const why = settings.log ? "no values above zero" : "not recorded on this axis";
        svg.append(svgNode("text", { x: edge.left, y: height / 2 }, zoom ? "no values in this range" : why));
        return;
      }
      const scale = settings.log ? Math.log10 : (y) => y, sound = (y) => !settings.log || y > 0;
      const ys = [...flat("y"), ...flat("raw"), ...flat("lo"), ...flat("hi"), ...(data.goal === null ? [] : [data.goal])].filter(sound).map(scale);
      const xs = flat("x"), marks = ticks(ys.reduce((a, b) => Math.min(a, b)), ys.reduce((a, b) => Math.max(a, b)), height < 200 ? 3 : 5);
      const [x0, x1] = zoom || [0, xs.reduce((a, b) => Math.max(a, b), 0) || 1], y1 = marks[marks.length - 1], y0 = marks[0] - 0.03 * (y1 - marks[0]); // what stays at the lowest mark is above the axis
      const X = (x) => edge.left + ((x - x0) / (x1 - x0 || 1)) * (width - edge.left - edge.right);
      const Y = (y) => height - edge.bottom - ((scale(y) - y0) / (y1 - y0)) * (height - edge.top - edge.bottom);
      this.plane = { X, x0, x1, edge, width, height };
      for (const mark of marks) {
        const y = height - edge.bottom - ((mark - y0) / (y1 - y0)) * (height - edge.top - edge.bottom);
        svg.append(svgNode("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y.toFixed(1), y2: y.toFixed(1) }));
        svg.append(svgNode("text", { x: edge.left - 6, y: y.toFixed(1), dy: 4, "text-anchor": "end" }, short(settings.log ? Number((10 ** mark).toPrecision(2)) : mark)));
      }
      this.bottom(small, zoom, x0, x1, X);
      const clip = `clip${Math.random().toString(36).slice(2)}`, inside = svgNode("g", { "clip-path": `url(#${clip})` }), area = svgNode("clipPath", { id: clip });
      area.append(svgNode("rect", { x: edge.left, y: 0, width: Math.max(0, width - edge.left - edge.right), height: height - edge.bottom + 2 }));
      svg.append(area, inside);
      if (data.goal !== null && sound(data.goal)) inside.append(svgNode("line", { class: "goal", x1: edge.left, x2: width - edge.right, y1: Y(data.goal).toFixed(1), y2: Y(data.goal).toFixed(1) }));
      const path = (xs, ys) => xs.map((x, i) => (sound(ys[i]) ? `${X(x).toFixed(1)},${Y(ys[i]).toFixed(1)}` : "")).join(" ");
      for (const line of lines) {
        if (line.lo) inside.append(svgNode("polygon", { class: `band ${line.c}`, points: `${path(line.x, line.hi)} ${path([...line.x].reverse(), [...line.lo].reverse())}` }));
        if (line.raw) inside.append(svgNode("polyline", { class: `curve raw ${line.c}`, points: path(line.x, line.raw) }));
        if (line.x.length === 1) inside.append(svgNode("circle", { class: `dot ${line.c}`, cx: X(line.x[0]).toFixed(1), cy: Y(line.y[0]).toFixed(1), r: 3 }));
        else inside.append(svgNode("polyline", { class: `curve ${line.c}${line.thin ? " thin" : ""}`, points: path(line.x, line.y) }));
      }
      this.cursor = svgNode("line", { class: "cursor", y1: edge.top, y2: height - edge.bottom, visibility: "hidden" });
      this.stretch = svgNode("rect", { class: "stretch", y: edge.top, height: height - edge.top - edge.bottom, visibility: "hidden" });
      svg.append(this.stretch, this.cursor);
    }

    bottom(small, zoom, x0, x1, X) { // marks of the x axis: in small its end, and its beginning where that is not 0
      const { svg, plane: { width, height, edge } } = this, put = (x, anchor, text) => svg.append(svgNode("text", { x: x.toFixed(1), y: height - 5, "text-anchor": anchor }, text));
      if (small) {
        if (zoom) put(edge.left, "start", along(x0));
        return put(width - edge.right, "end", `${along(x1)}${settings.axis === "time" ? "" : ` ${AXES[settings.axis]}`}`);
      }
      const name = AXES[settings.axis], room = width - edge.right - 7 * name.length - 10;
      for (const mark of ticks(x0, x1, width < 600 ? 3 : 6)) if (mark >= x0 && mark <= x1 && X(mark) < room - 10) put(X(mark), "middle", along(mark));
      put(width - edge.right, "end", name);
    }

    legend(lines) {
      const box = this.keys, names = [...new Map(lines.filter((line) => !line.thin).map((line) => [line.name, line.c]))];
      box.replaceChildren(...names.slice(0, MOST_NAMED).map(([name, colour]) => make("span", `key ${colour}`, name)));
      if (names.length > MOST_NAMED) box.append(make("span", "", `and ${names.length - MOST_NAMED} more`));
      if (this.data.goal !== null) box.append(make("span", "key goalkey", `goal ${this.data.goalText}`));
    }

    at(event) { // where on the x axis a pointer is
      const { x0, x1, edge, width } = this.plane, box = this.svg.getBoundingClientRect();
      const part = (((event.clientX - box.left) / box.width) * width - edge.left) / (width - edge.left - edge.right);
      return x0 + Math.max(0, Math.min(1, part)) * (x1 - x0);
    }

    listen() {
      const { svg } = this;
      let from = null;
      svg.addEventListener("pointerdown", (event) => {
        if (!this.plane || event.button) return;
        from = this.at(event);
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointermove", (event) => {
        if (!this.plane || !this.shown.length) return;
        const x = this.at(event), { X } = this.plane;
        this.read(x);
        if (from === null) return;
        const [a, b] = [X(from), X(x)].sort((one, other) => one - other);
        for (const [key, number] of [["x", a], ["width", b - a]]) this.stretch.setAttribute(key, number.toFixed(1));
        this.stretch.setAttribute("visibility", "visible");
      });
      svg.addEventListener("pointerup", (event) => {
        if (from === null) return;
        const [a, b] = [from, this.at(event)].sort((one, other) => one - other), { X } = this.plane;
        from = null;
        if (X(b) - X(a) > 8) zoomTo(this.board, [a, b]); else this.stretch.setAttribute("visibility", "hidden");
      });
      svg.addEventListener("pointercancel", () => { from = null; this.draw(); });
      svg.addEventListener("pointerleave", () => { if (this.cursor && from === null) { this.cursor.setAttribute("visibility", "hidden"); this.said.textContent = ""; } });
      svg.addEventListener("dblclick", () => zoomTo(this.board, null));
    }

    read(x) { // the values under the pointer, of the curves that are named
      const { X } = this.plane, named = this.shown.filter((line) => !line.thin);
      this.cursor.setAttribute("x1", X(x).toFixed(1));
      this.cursor.setAttribute("x2", X(x).toFixed(1));
      this.cursor.setAttribute("visibility", "visible");
      const told = named.slice(0, 6).map((line) => (named.length > 1 ? `${line.name} ` : "") + value(between(x, line.x, line.y)));
      this.said.textContent = `${along(x)}: ${told.join(", ")}`;
    }

    save(ending) {
      const name = this.data.title.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "chart";
      const { save } = window.strideFiles;
      if (ending === "csv") return save(name, ending, new Blob([this.csv()], { type: "text/csv" }));
      const picture = this.picture();
      if (ending === "svg") return save(name, ending, picture);
      const image = new Image(), address = URL.createObjectURL(picture);
      image.onload = () => {
        const canvas = document.createElement("canvas"), box = this.svg.viewBox.baseVal;
        Object.assign(canvas, { width: 2 * box.width, height: 2 * box.height });
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        URL.revokeObjectURL(address);
        canvas.toBlob((blob) => save(name, ending, blob), "image/png");
      };
      image.src = address;
    }

    csv() { // what is drawn, unsmoothed too
      const { cell } = window.strideFiles, rows = ["curve,axis,x,y,smoothed,low,high"];
      for (const line of this.shown) {
        line.x.forEach((x, i) => rows.push([cell(line.name), settings.axis, x, (line.raw || line.y)[i], line.raw ? line.y[i] : "", line.lo ? line.lo[i] : "", line.hi ? line.hi[i] : ""].join(",")));
      }
      return `${rows.join("\n")}\n`;
    }

    picture() { // a copy that carries its style, for files that have no style sheet
      const copy = this.svg.cloneNode(true), box = this.svg.viewBox.baseVal, all = [...copy.querySelectorAll("*")], style = getComputedStyle(this.figure);
      [...this.svg.querySelectorAll("*")].forEach((node, i) => {
        const found = getComputedStyle(node);
        for (const key of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "visibility"]) all[i].style.setProperty(key, found.getPropertyValue(key));
      });
      Object.entries({ xmlns: "http://www.w3.org/2000/svg", width: box.width, height: box.height }).forEach(([key, each]) => copy.setAttribute(key, each));
      copy.prepend(svgNode("rect", { width: "100%", height: "100%", fill: style.getPropertyValue("--paper") || "#fff" }));
      return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
    }
  }

  const charts = new WeakMap(), fitted = new WeakSet();
  const everywhere = (act) => document.querySelectorAll(".chart").forEach((figure) => charts.has(figure) && act(charts.get(figure)));
  function redraw() {
    everywhere((chart) => chart.draw());
    document.querySelectorAll(".board > .tools").forEach(show);
  }
  function zoomTo(board, stretch) {
    if (stretch) zooms[zoomKey(board)] = stretch; else delete zooms[zoomKey(board)];
    redraw();
  }

  function tools(box) {
    const axis = make("select", "field"), smooth = make("input"), scale = make("select", "field"), back = make("button", "button", "whole range");
    for (const [key, name] of Object.entries(AXES)) axis.append(new Option(`over ${name}`, key));
    scale.append(new Option("linear y", ""), new Option("log y", "log"));
    Object.assign(smooth, { type: "range", min: 0, max: 0.98, step: 0.02 });
    for (const [node, name] of [[axis, "x axis"], [scale, "y axis"], [smooth, "smoothing"]]) node.setAttribute("aria-label", name);
    back.type = "button";
    axis.addEventListener("change", () => { settings.axis = axis.value; redraw(); });
    scale.addEventListener("change", () => { settings.log = scale.value === "log"; redraw(); });
    smooth.addEventListener("input", () => { settings.smooth = +smooth.value; redraw(); });
    back.addEventListener("click", () => zoomTo(box.parentElement, null));
    const label = make("label", "smooth", "smoothing");
    label.append(smooth, make("span", "number"));
    box.replaceChildren(axis, scale, label, back, make("span", "hint", "drag to zoom"));
    show(box);
  }
  function show(box) { // the settings of now
    const [axis, scale, label, back] = box.children;
    if (!back) return;
    axis.value = settings.axis;
    scale.value = settings.log ? "log" : "";
    label.querySelector("input").value = settings.smooth;
    label.querySelector(".number").textContent = settings.smooth.toFixed(2);
    back.hidden = !zooms[zoomKey(box.parentElement)];
    box.querySelector(".hint").hidden = !back.hidden;
  }

  function columns(box) { // as many as fit, or one or two fewer where that leaves no hole
    if (!box.clientWidth) return;
    const count = box.children.length, least = box.clientWidth < 600 ? 140 : 240, most = Math.max(1, Math.floor((box.clientWidth + 18) / (least + 18)));
    const holes = (each) => (each - (count % each)) % each;
    const best = [most, most - 1, most - 2].filter((each) => each >= 1 && (each > 1 || most === 1)).reduce((a, b) => (holes(b) < holes(a) ? b : a));
    box.style.setProperty("--columns", Math.min(best, count));
  }

  function look() { // before the browser paints what the server sent
    document.querySelectorAll(".board > .tools:empty").forEach(tools);
    for (const box of document.querySelectorAll(".multiples")) {
      if (!fitted.has(box)) new ResizeObserver(() => columns(box)).observe(box);
      fitted.add(box);
      columns(box);
    }
    for (const figure of document.querySelectorAll(".chart[data-chart]")) { // Gradio keeps elements and empties them
      const chart = charts.get(figure);
      if (!chart || chart.source !== figure.dataset.chart || chart.svg.parentNode !== figure) charts.set(figure, new Chart(figure));
    }
  }
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
  window.strideCharts = { svgNode, make, ticks, short };
})();
