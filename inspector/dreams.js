// What a world model dreams from the step that is looked at, beside what really happened. Alone of all that an episode shows
// it is asked of the server, where the scrubber stands still; what has come is kept. Server text is only ever numbers.
window.strideDreams = (() => {
  const HORIZON = 15, MOST = 16; // steps; observations that are drawn
  const WIDTH = 260, HEIGHT = 108, LEFT = 4, TOP = 8, BOTTOM = 15;
  const STILL = 120, PATIENCE = 8000, PACE = 160; // ms: until a step is asked for, for an answer, of a dreamt image
  const SVG = "http://www.w3.org/2000/svg";
  const make = (name, cls, text) => {
    const node = document.createElement(name);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const drawn = (name, attributes, text) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const show = (x) => (x === null || x === undefined ? "–" : x.toLocaleString("en", { maximumSignificantDigits: Math.abs(x) < 0.1 ? 2 : 3 }));

  class Dreams {
    constructor(data, key) {
      this.d = data;
      this.key = key;
      this.kept = new Map();
      this.step = -1;
      this.lines = this.truths();
      this.build();
    }

    // what happened, at all T + 1 instants; reward and continuation are of the instant arrived at, as a dream tells them
    truths() {
      const d = this.d, observed = d.observations.slice(0, MOST).map((each, i) => ({ name: each.name, true: d.observed.map((row) => row[i]), dreamt: (told) => told.seen.map((row) => row[i]) }));
      const judged = [
        { name: "reward", true: [null, ...d.reward], dreamt: (told) => told.reward, zero: true },
        { name: "continue", true: d.observed.map((_, t) => (t === d.steps && d.terminated ? 0 : 1)), dreamt: (told) => told.goes_on, low: 0, high: 1 }];
      if (d.value) judged.push({ name: "value", true: d.value, dreamt: (told) => told.value || [], zero: true });
      return { observed, judged };
    }

    build() {
      const { d, lines: { observed, judged } } = this, head = make("div", "ep-dream-head"), legend = make("span", "legend");
      this.said = make("span", "dim");
      legend.append(make("span", "key truth", "real"), make("span", "key dreamt", "dreamt"));
      head.append(make("h4", "", "Dream"), this.said, legend);
      this.panel = make("section", "ep-dream");
      this.panel.append(head);
      this.film = make("canvas", "ep-dreamt");
      this.caption = make("div", "ep-dreamt-at dim");
      this.strip = make("canvas", "ep-dream-strip");
      this.strip.title = "above: real, below: dreamt, one step per column";
      this.panel.append(this.strip);
      this.strip.hidden = true;
      for (const [kind, some] of [["observed", observed], ["judged", judged]]) {
        if (!some.length) continue;
        const grid = make("div", `ep-dream-grid ${kind}`);
        grid.append(...some.map((line) => this.cell(line)));
        this.panel.append(grid);
      }
      if (d.observations.length > MOST) this.panel.insertBefore(make("p", "note", `the first ${MOST} of ${d.observations.length} observed numbers`), this.panel.lastChild);
    }

    cell(line) {
      const figure = make("figure", "ep-dream-line"), head = make("figcaption", "");
      line.said = make("span", "number dim");
      line.svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${line.name}, dreamt and real` });
      const name = make("span", "label", line.name);
      name.title = line.name;
      head.append(name, line.said);
      figure.append(head, line.svg);
      const there = line.true.filter((x) => x !== null);
      line.range = [line.low ?? Math.min(...there, ...(line.zero ? [0] : [])), line.high ?? Math.max(...there, ...(line.zero ? [0] : []))];
      return figure;
    }

    // beside the film of what the policy saw
    beside(pictures, ages, count) {
      const row = make("div", "ep-films"), saw = make("div", ""), dreamt = make("div", "");
      saw.style.flexGrow = count;
      pictures.replaceWith(row);
      saw.append(pictures, ages);
      if (!ages.childNodes.length) ages.append(make("span", "", "seen"));
      dreamt.append(this.film, this.caption);
      row.append(saw, dreamt);
    }

    seek(step, playing) {
      if (step === this.step && playing === this.playing) return;
      [this.step, this.playing] = [step, playing];
      clearTimeout(this.waiting);
      const told = this.kept.get(step);
      this.draw(told);
      if (!told && !playing && step < this.d.steps) this.waiting = setTimeout(() => this.ask(), STILL);
    }

    ask() {
      if (this.kept.has(this.step) || this.playing || !window.strideAskDream) return;
      if (this.asked && performance.now() - this.asked < PATIENCE) return; // its answer asks again
      this.asked = performance.now();
      window.strideAskDream(this.key, this.step);
      clearInterval(this.looking);
      this.looking = setInterval(() => this.look(), 30);
    }

    look() {
      const found = document.querySelector("#dreamt .stride-dreamt");
      if (performance.now() - this.asked > PATIENCE) return this.rest();
      if (!found || found.dataset.key !== this.key) return;
      const told = JSON.parse(found.dataset.dream);
      if (this.kept.has(told.step)) return;
      this.rest();
      this.kept.set(told.step, told);
      if (told.reward.length && !told.value) this.forget("value"); // nobody judges what is dreamt
      if (told.step === this.step) this.draw(told);
      else if (this.step < this.d.steps) this.ask();
    }

    forget(name) {
      for (const line of this.lines.judged.filter((each) => each.name === name)) line.svg.parentNode.remove();
      this.lines.judged = this.lines.judged.filter((each) => each.name !== name);
    }

    rest() {
      clearInterval(this.looking);
      this.asked = 0;
    }

    draw(told) {
      const { d, step } = this, count = told ? told.reward.length : 0;
      this.panel.dataset.dreamt = told ? step : "";
      const ends = count && count < HORIZON ? `, where the ${d.terminated ? "episode" : "recording"} ends` : "";
      this.said.textContent = step >= d.steps ? "no steps follow the end" : this.playing ? "pause to start a dream from this step"
        : `${Math.min(HORIZON, d.steps - step)} steps from step ${step}${ends}, with the actions that were taken`;
      for (const line of [...this.lines.observed, ...this.lines.judged]) this.plot(line, told ? line.dreamt(told) : []);
      this.play(told && told.film);
    }

    plot(line, dreamt) {
      const { d: { steps }, step } = this, first = step - HORIZON;
      const known = dreamt.filter((x) => x !== null), [low, high] = [Math.min(line.range[0], ...known), Math.max(line.range[1], ...known)];
      const pad = (high - low) * 0.04 || Math.abs(high) * 0.1 || 0.1, floor = line.low === undefined ? low - pad : low, roof = line.high === undefined ? high + pad : high;
      const x = (t) => LEFT + ((t - first) / (2 * HORIZON)) * (WIDTH - 2 * LEFT), y = (value) => TOP + (1 - (value - floor) / (roof - floor)) * (HEIGHT - TOP - BOTTOM);
      const path = (points) => points.filter(([t, value]) => value !== null && t >= 0).map(([t, value]) => `${x(t).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
      const around = line.true.map((value, t) => [t, value]).slice(Math.max(0, first), step + HORIZON + 1), parts = [];
      parts.push(drawn("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT - BOTTOM + 1, y2: HEIGHT - BOTTOM + 1 }));
      if (step <= steps) parts.push(drawn("line", { class: "now", x1: x(step), x2: x(step), y1: 2, y2: HEIGHT - BOTTOM + 1 }));
      parts.push(drawn("polyline", { class: "truth", points: path(around) }));
      const from = line.true[step] === null || line.true[step] === undefined ? [] : [[step, line.true[step]]];
      if (dreamt.length) parts.push(drawn("polyline", { class: "dreamt", points: path([...from, ...dreamt.map((value, i) => [step + 1 + i, value])]) }));
      parts.push(drawn("text", { x: 3, y: TOP + 6 }, show(roof - (line.high === undefined ? pad : 0))), drawn("text", { x: 3, y: HEIGHT - BOTTOM - 3 }, show(floor + (line.low === undefined ? pad : 0))));
      parts.push(drawn("text", { class: "at", x: x(step), y: HEIGHT - 3 }, step), drawn("text", { class: "last", x: WIDTH - 3, y: HEIGHT - 3 }, `+${HORIZON}`));
      line.svg.replaceChildren(...parts);
      const end = step + dreamt.length;
      line.said.textContent = dreamt.length ? `${show(dreamt[dreamt.length - 1])}, came ${show(line.true[end])}` : "";
      line.said.title = dreamt.length ? `dreamt and true at step ${end}` : "";
    }

    // the imagined images one after the other, and all of them below the real ones
    play(film) {
      clearInterval(this.playback);
      this.strip.hidden = !film;
      for (const canvas of [this.film, this.strip]) canvas.width = canvas.width; // cleared
      this.caption.textContent = film ? "dreamt" : "";
      if (!film) return;
      const picture = new Image();
      picture.onload = () => {
        if (!this.kept.get(this.step) || this.kept.get(this.step).film !== film) return;
        this.spread(picture, film);
        let at = 0;
        const next = () => {
          Object.assign(this.film, { width: film.width, height: film.height });
          this.film.getContext("2d").drawImage(picture, film.width, at * film.height, film.width, film.height, 0, 0, film.width, film.height);
          this.caption.textContent = `dreamt, +${at + 1}`;
          this.film.dataset.at = at + 1;
          at = (at + 1) % film.count;
        };
        next();
        if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.playback = setInterval(next, PACE);
      };
      picture.src = film.png;
    }

    spread(picture, { width, height, count }) {
      const gap = Math.max(1, Math.round(width / 24)), pen = this.strip.getContext("2d");
      Object.assign(this.strip, { width: HORIZON * (width + gap) - gap, height: 2 * height + gap });
      for (let i = 0; i < count; i++) {
        for (const row of [0, 1]) pen.drawImage(picture, row * width, i * height, width, height, i * (width + gap), row * (height + gap), width, height);
      }
    }

    close() {
      clearTimeout(this.waiting);
      clearInterval(this.looking);
      clearInterval(this.playback);
    }
  }

  return Dreams;
})();
