// Trials of a search: the return over one setting, and all settings side by side, a line for each run.
(() => {
  const { svgNode, make, ticks, short } = window.strideCharts;
  const settings = { key: "" }; // kept while the server redraws the page
  const span = (values) => [Math.min(...values), Math.max(...values)];

  class Trials {
    constructor(box) {
      this.box = box;
      this.source = box.dataset.trials;
      this.data = JSON.parse(this.source);
      this.returns = span(this.data.runs.map((run) => run.return));
      const { keys } = this.data, head = make("div", "tools");
      this.choice = make("select", "field");
      this.choice.setAttribute("aria-label", "setting");
      for (const key of keys) this.choice.append(new Option(`return over ${key}`, key));
      this.choice.value = keys.includes(settings.key) ? settings.key : keys[0];
      this.choice.addEventListener("change", () => { settings.key = this.choice.value; this.draw(); });
      head.append(this.choice);
      this.said = make("p", "note trial-said", "\u00a0");
      this.scatter = svgNode("svg", { role: "img", "aria-label": "return over a setting" });
      this.parallel = svgNode("svg", { role: "img", "aria-label": "settings and return of each run" });
      box.replaceChildren(head, this.scatter, this.parallel, this.said);
      for (const svg of [this.scatter, this.parallel]) {
        for (const name of ["pointermove", "pointerdown"]) svg.addEventListener(name, (event) => this.point(svg, event));
        svg.addEventListener("pointerleave", () => this.read(null));
      }
      const watch = new ResizeObserver(() => { // of its width: what is read below changes the height
        if (this.scatter.parentNode !== box) watch.disconnect();
        else if (box.clientWidth !== this.width) this.draw();
      });
      watch.observe(box);
    }

    part(run) { // 0 for the lowest return, 1 for the highest
      const [low, high] = this.returns;
      return high > low ? (run.return - low) / (high - low) : 1;
    }

    colour(run) {
      return `color-mix(in oklab, var(--c1) ${(100 * this.part(run)).toFixed(0)}%, var(--c3))`;
    }

    place(index) { // of a setting: position 0 to 1 of each run, and marks [position, text]
      const { runs } = this.data, numbers = runs.map((run) => run.numbers[index]), texts = runs.map((run) => run.values[index]);
      if (numbers.some((number) => number === null)) {
        const names = [...new Set(texts)].sort(), where = (text) => (names.length > 1 ? names.indexOf(text) / (names.length - 1) : 0.5);
        return { at: texts.map(where), marks: names.slice(0, 12).map((name) => [where(name), name.slice(0, 14)]) };
      }
      const [low, high] = span(numbers), log = low > 0 && high / low >= 20, scale = log ? Math.log10 : (x) => x;
      const at = (x) => (high > low ? (scale(x) - scale(low)) / (scale(high) - scale(low)) : 0.5);
      const inner = log ? Array.from({ length: 12 }, (_, i) => 10 ** (Math.ceil(Math.log10(low)) + i)) : ticks(low, high, 4);
      const marks = inner.filter((x) => at(x) > 0.08 && at(x) < 0.92).map((x) => [at(x), short(x)]);
      return { at: numbers.map(at), marks: [[at(low), short(low)], ...marks, ...(high > low ? [[1, short(high)]] : [])] };
    }

    draw() {
      const width = this.width = this.box.clientWidth;
      if (!width) return;
      this.spots = new Map([[this.scatter, []], [this.parallel, []]]);
      this.drawScatter(width, width < 600 ? 220 : 260);
      this.drawParallel(width, width < 600 ? 240 : 280);
      this.read(null);
    }

    begin(svg, width, height) {
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      svg.replaceChildren();
    }

    drawScatter(width, height) {
      const { keys, runs } = this.data, svg = this.scatter, edge = { left: 46, right: 20, top: 10, bottom: 36 };
      const { at, marks } = this.place(keys.indexOf(this.choice.value)), rows = ticks(...this.returns, 4), y0 = rows[0], y1 = rows[rows.length - 1];
      const X = (part) => edge.left + 12 + part * (width - edge.left - edge.right - 24);
      const Y = (y) => height - edge.bottom - 6 - ((y - y0) / (y1 - y0)) * (height - edge.top - edge.bottom - 6);
      this.begin(svg, width, height);
      for (const row of rows) {
        svg.append(svgNode("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: Y(row), y2: Y(row) }));
        svg.append(svgNode("text", { x: edge.left - 6, y: Y(row), dy: 4, "text-anchor": "end" }, short(row)));
      }
      for (const [part, text] of marks) svg.append(svgNode("text", { x: X(part), y: height - edge.bottom + 13, "text-anchor": "middle" }, text));
      svg.append(svgNode("text", { x: width - edge.right, y: height - 5, "text-anchor": "end" }, this.choice.value));
      runs.forEach((run, i) => {
        const dot = svgNode("circle", { class: "trial-dot", cx: X(at[i]).toFixed(1), cy: Y(run.return).toFixed(1), r: 4.5 });
        dot.style.fill = this.colour(run);
        svg.append(dot);
        this.spots.get(svg).push({ i, node: dot, distance: (x, y) => Math.hypot(x - X(at[i]), y - Y(run.return)) });
      });
    }

    drawParallel(width, height) {
      const { keys, runs } = this.data, svg = this.parallel, bottom = height - 14;
      const most = Math.max(2, Math.floor(width / 64) - 1), shown = keys.slice(0, most), count = shown.length;
      const crowded = (width - 90) / count < 110, top = crowded ? 38 : 26; // then every other name is a line lower
      const X = (i) => 40 + (i * (width - 90)) / count, Y = (part) => bottom - part * (bottom - top);
      const [low, high] = this.returns, places = shown.map((_, i) => this.place(i));
      places.push({ at: runs.map((run) => this.part(run)), marks: [...(high > low ? [[0, short(low)]] : []), [1, short(high)]] });
      this.begin(svg, width, height);
      const order = runs.map((_, i) => i).sort((a, b) => runs[a].return - runs[b].return); // the best are on top
      for (const i of order) {
        const points = places.map((place, axis) => [X(axis), Y(place.at[i])]);
        const line = svgNode("polyline", { class: "trial-line", points: points.map((point) => point.map((x) => x.toFixed(1)).join(",")).join(" ") });
        line.style.stroke = this.colour(runs[i]);
        svg.append(line);
        this.spots.get(svg).push({ i, node: line, distance: (x, y) => {
          const axis = Math.max(0, Math.min(count - 1, Math.floor(((x - 40) * count) / (width - 90)))), part = (x - X(axis)) / (X(axis + 1) - X(axis));
          return Math.abs(points[axis][1] + part * (points[axis + 1][1] - points[axis][1]) - y);
        } });
      }
      [...shown, "return"].forEach((key, axis) => {
        const x = X(axis), anchor = axis === count ? "end" : axis ? "middle" : "start";
        svg.append(svgNode("line", { class: "trial-axis", x1: x, x2: x, y1: top, y2: bottom }));
        svg.append(svgNode("text", { x: axis === count ? width - 4 : axis ? x : 4, y: 12 + 12 * (crowded && axis % 2 && axis !== count), "text-anchor": anchor, class: "trial-name" }, key.slice(0, 18)));
        for (const [part, text] of places[axis].marks) svg.append(svgNode("text", { x: x + 5, y: Y(part), dy: 4, class: "trial-mark" }, text));
      });
      if (keys.length > count) svg.append(svgNode("text", { x: width - 4, y: height - 2, "text-anchor": "end" }, `${keys.length - count} more settings above`));
    }

    point(svg, event) { // the run that is nearest to the pointer
      const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      const near = this.spots.get(svg).map((spot) => [spot.distance(x, y), spot.i]).sort(([a], [b]) => a - b)[0];
      this.read(near && near[0] < 24 ? near[1] : null);
    }

    read(index) {
      for (const spots of this.spots.values()) {
        for (const { i, node } of spots) {
          node.classList.toggle("chosen", i === index);
          node.classList.toggle("faint", index !== null && i !== index);
        }
      }
      const run = this.data.runs[index], pairs = run && this.data.keys.map((key, i) => `${key}=${run.values[i] || "default"}`);
      this.said.textContent = run ? `return ${short(run.return)}: ${pairs.join("  ")}  seed ${run.seed ?? "?"}  ${run.id}` : "\u00a0";
    }
  }

  const drawn = new WeakMap();
  function look() {
    for (const box of document.querySelectorAll(".trials[data-trials]")) {
      const trials = drawn.get(box);
      if (!trials || trials.source !== box.dataset.trials || trials.scatter.parentNode !== box) drawn.set(box, new Trials(box));
    }
  }
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
})();
