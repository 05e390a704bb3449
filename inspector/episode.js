// The episode player: everything a recording holds is here already, so no step asks the server for anything.
// Server text is only ever put in as textContent. Videos, thumbnails and exports: files.js;
// what a world model dreams, which alone is asked for: dreams.js.
(() => {
  const make = (name, cls, text) => {
    const node = document.createElement(name);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const show = (x, digits = 3) => (x === null || x === undefined ? "–" : Number(x.toFixed(digits)).toLocaleString("en", { maximumFractionDigits: digits }));
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name) || "#888";
  const files = window.strideFiles, { CAUSES } = files;
  // what a critic estimates is discounted, what is reported as a return is not: both are drawn, value and what it stands for on one scale
  const LANES = [["value", "--c0", "value (discounted)"], ["discounted", "--c4", "discounted return to go"], ["to_go", "--c1", "return to go (undiscounted)"], ["reward", "--c2", "reward"], ["entropy", "--c3", "entropy"], ["moved", "--c5", "change of memory"]];
  const TOGETHER = { value: "discounted", discounted: "value" };

  class Episode {
    constructor(root) {
      this.root = root;
      this.data = JSON.parse(root.dataset.episode);
      this.step = 0;
      this.playing = false;
      this.speed = 1;
      this.cause = "";
      this.films = {};
      this.dreams = this.data.dreams ? new window.strideDreams(this.data, root.dataset.key) : null;
      this.build();
      this.load();
      this.seek(0);
      new ResizeObserver(() => this.draw()).observe(this.canvas);
    }

    build() {
      const d = this.data, root = this.root;
      const head = make("div", "ep-head");
      head.append(make("strong", "", `return ${show(d.return, 2)}`), make("span", "", `${d.steps} steps, ${d.reason}`),
        make("span", "dim", `${d.env}, ${d.checkpoint}, ${d.mode}, seed ${d.seed}`));
      if (d.note) head.append(make("span", "warn", d.note));
      const left = make("div", "ep-left"), right = make("div", "ep-right"), body = make("div", "ep-body");
      for (const kind of Object.keys(d.videos)) this.films[kind] = this.film(kind);
      left.append(this.films.frame || make("div", "ep-frame none", "no picture"), this.controls(), this.jumps());
      right.append(this.facts(), this.bars("Policy", d.actions, "ep-policy"), this.observed());
      body.append(left, right);
      this.canvas = make("canvas", "ep-timeline");
      const pick = (event) => {
        const box = this.canvas.getBoundingClientRect();
        this.pause();
        this.seek(Math.round(((event.clientX - box.left) / box.width) * d.steps));
      };
      this.canvas.addEventListener("pointerdown", (event) => { this.canvas.setPointerCapture(event.pointerId); pick(event); });
      this.canvas.addEventListener("pointermove", (event) => { if (event.buttons) pick(event); });
      this.strip = make("div", "ep-strip");
      root.replaceChildren(head, body, ...(this.dreams ? [this.dreams.panel] : []), this.legend(), this.canvas, this.strip, this.exports());
      root.tabIndex = 0;
    }

    film(kind) {
      const video = make("video", kind === "frame" ? "ep-frame" : `ep-${kind}`);
      video.muted = true;
      video.playsInline = true;
      if (kind === "frame") video.addEventListener("click", () => this.toggle());
      return video;
    }

    observed() {
      const d = this.data, names = d.observations.map((o) => o.name), box = this.bars("Observation", names, "ep-observation");
      if (!names.length && !this.films.seen) return box;
      if (!names.length) box.append(make("h4", "", "Observation"));
      if (this.films.seen) {
        const pictures = make("div", "ep-pictures"), ages = make("div", "ep-ages"), [count] = d.stacked;
        pictures.append(this.films.seen, ...Object.keys(CAUSES).filter((kind) => this.films[kind]).map((kind) => this.films[kind]));
        for (let i = 0; count > 1 && i < count; i++) ages.append(make("span", "", i === count - 1 ? "now" : `${count - 1 - i} ago`));
        box.querySelector("h4").after(pictures, ages);
        if (this.dreams) this.dreams.beside(pictures, ages, count || 1);
      }
      const kinds = Object.keys(CAUSES).filter((kind) => this.films[kind] || (d.saliency[kind] && d.saliency[kind][0].some((x) => x !== null)));
      if (kinds.length) box.querySelector("h4").append(this.causes(kinds));
      return box;
    }

    causes(kinds) {
      const choice = make("select", "ep-cause");
      choice.setAttribute("aria-label", "saliency");
      choice.title = "the gradient for each number, times the range of that number in this episode; for images, its size";
      choice.append(new Option("saliency off", ""), ...kinds.map((kind) => new Option(`saliency ${CAUSES[kind]}`, kind)));
      choice.addEventListener("change", () => {
        this.cause = this.root.dataset.saliency = choice.value;
        this.observation();
      });
      return choice;
    }

    button(text, title, act) {
      const node = make("button", "ep-button", text);
      node.type = "button";
      node.title = title;
      node.setAttribute("aria-label", title);
      node.addEventListener("click", act);
      return node;
    }

    controls() {
      const row = make("div", "ep-controls");
      this.play = this.button("▶", "play or pause (space)", () => this.toggle());
      this.play.classList.add("main");
      this.slider = make("input", "ep-slider");
      Object.assign(this.slider, { type: "range", min: 0, max: this.data.steps, value: 0 });
      this.slider.setAttribute("aria-label", "step");
      this.slider.addEventListener("input", () => { this.pause(); this.seek(+this.slider.value); });
      this.counter = make("span", "ep-step");
      const speed = make("select", "ep-speed");
      speed.setAttribute("aria-label", "speed");
      for (const factor of [0.25, 0.5, 1, 2, 4]) speed.append(new Option(`${factor}×`, factor, factor === 1, factor === 1));
      speed.addEventListener("change", () => { this.speed = +speed.value; this.clock = undefined; });
      row.append(this.play, this.button("‹", "step back (left arrow)", () => this.nudge(-1)), this.slider,
        this.button("›", "step forward (right arrow)", () => this.nudge(1)), this.counter, speed);
      return row;
    }

    jumps() {
      const d = this.data, row = make("div", "ep-jumps");
      const largest = (list) => list.reduce((best, x, i) => (Math.abs(x) > Math.abs(list[best]) ? i : best), 0);
      const go = (step) => { this.pause(); this.seek(step); };
      row.append(make("span", "dim", "go to"),
        this.button("next reward", "next step with a reward that is not zero", () => { const at = d.reward.findIndex((x, i) => i > this.step && x); if (at >= 0) go(at); }),
        this.button("end", "termination", () => go(d.steps)));
      if (d.td_error) row.append(this.button("largest |TD error|", "where the critic was most surprised", () => go(largest(d.td_error))));
      row.append(this.button("largest entropy", "where the policy was least sure", () => go(largest(d.entropy))));
      return row;
    }

    facts() {
      const list = make("dl", "facts ep-facts");
      this.cells = {};
      const discount = `discounted by γ = ${this.data.gamma}`, learnt = this.data.scaled ? `${discount}, of rewards as scaled in training` : discount;
      const names = [["reward", "reward", "as the environment gave it"], ["so_far", "return so far", "undiscounted sum of rewards until now"], ["to_go", "return to go", "undiscounted sum of the rewards that follow"],
        ["discounted", "discounted to go", `${discount}; beyond a cut end by the critic's word`], ["value", "value", `the critic's estimate, ${learnt}`], ["advantage", "advantage", learnt], ["td_error", "TD error", learnt], ["entropy", "entropy", "of the policy here"], ["moved", "memory moved", "the norm of the change of what it remembers"]];
      for (const [key, name, title] of names) {
        if (!this.data[key]) continue;
        const cell = make("div");
        this.cells[key] = make("dd", `ep-${key}`);
        cell.title = title;
        cell.append(make("dt", "", name), this.cells[key]);
        list.append(cell);
      }
      return list;
    }

    bars(title, names, cls) {
      const box = make("div", `ep-bars ${cls}`);
      if (!names.length) return box;
      box.append(make("h4", "", title));
      box.rows = names.map((name) => {
        const row = make("div", "ep-bar"), track = make("div", "track"), fill = make("div", "fill"), mark = make("div", "mark"), number = make("span", "number");
        const label = make("span", "label", name);
        label.title = name;
        track.append(fill, mark);
        const cause = make("div", "cause"), push = make("div", "push");
        cause.append(push);
        track.append(cause);
        row.append(label, track, number);
        box.append(row);
        return { row, fill, mark, number, push };
      });
      this[cls] = box.rows;
      return box;
    }

    legend() {
      const box = make("div", "legend");
      for (const [key, variable, name] of [...LANES, ["attention", "--c5", "attention of this step to those before it"]]) {
        if (!this.data[key]) continue;
        const item = make("span", "key", name);
        item.style.setProperty("--key", `var(${variable})`);
        box.append(item);
      }
      box.append(make("span", "dim", `γ = ${this.data.gamma}${this.data.scaled ? ", value of scaled rewards" : ""}; click to go there`));
      return box;
    }

    exports() {
      const row = make("div", "ep-exports"), d = this.data, { frame } = this.films;
      const save = (ending, blob) => files.save(`${d.run}-${d.checkpoint}-${d.mode}-s${d.seed}`.replace("=", ""), ending, blob);
      const { videos, ...numbers } = d;
      row.append(this.button("CSV", "every step as a row", () => save("csv", new Blob([files.csv(d)], { type: "text/csv" }))),
        this.button("JSON", "everything but the frames", () => save("json", new Blob([JSON.stringify(numbers)], { type: "application/json" }))));
      if (frame) row.append(this.button("mp4", "the frames", () => frame.blob && save("mp4", frame.blob)));
      return row;
    }

    async load() {
      await Promise.all(Object.entries(this.films).map(([kind, video]) => files.fill(video, this.data.videos[kind])));
      this.seek(this.step);
      this.root.dataset.ready = "yes";
      const { films: { frame }, data: d, strip } = this, count = Math.max(4, Math.floor((strip.clientWidth || 700) / 120));
      if (!frame || !frame.blob) return;
      files.thumbnails(frame.src, d, Math.min(d.steps + 1, count), (picture, step) => {
        const button = this.button("", `go to step ${step}`, () => { this.pause(); this.seek(step); });
        button.replaceChildren(picture, make("span", "", step));
        strip.append(button);
        return strip.isConnected;
      });
    }

    close() {
      this.pause();
      if (this.dreams) this.dreams.close();
      for (const video of Object.values(this.films)) if (video.src) URL.revokeObjectURL(video.src);
    }

    nudge(by) { this.pause(); this.seek(this.step + by); }
    pause() {
      this.playing = false;
      this.play.textContent = "▶";
      if (this.dreams) this.dreams.seek(this.step, false);
    }

    toggle() {
      if (this.playing) return this.pause();
      if (this.step >= this.data.steps) this.seek(0);
      this.playing = true;
      this.play.textContent = "❚❚";
      this.clock = undefined;
      requestAnimationFrame((now) => this.tick(now));
    }

    tick(now) {
      if (!this.playing || !this.root.isConnected) return;
      if (this.clock === undefined) [this.clock, this.from] = [now, this.step];
      const at = this.from + Math.floor(((now - this.clock) / 1000) * this.data.fps * this.speed);
      if (at !== this.step) this.seek(at);
      if (this.step >= this.data.steps) return this.pause();
      requestAnimationFrame((later) => this.tick(later));
    }

    seek(step) {
      const d = this.data;
      this.step = Math.max(0, Math.min(d.steps, step));
      this.root.dataset.step = this.step;
      this.slider.value = this.step;
      this.counter.textContent = `${this.step} / ${d.steps}`;
      for (const video of Object.values(this.films)) if (video.blob) video.currentTime = (this.step + 0.5) / d.fps;
      const over = this.step === d.steps, t = Math.min(this.step, d.steps - 1);
      for (const [key, cell] of Object.entries(this.cells)) cell.textContent = over && key !== "value" && key !== "so_far" ? "–" : show(d[key][key === "so_far" ? t : this.step]);
      this.policy(t, over);
      this.observation();
      this.draw();
      if (this.dreams) this.dreams.seek(this.step, this.playing);
    }

    policy(t, over) {
      const d = this.data;
      (this["ep-policy"] || []).forEach(({ row, fill, mark, number }, i) => {
        row.classList.toggle("over", over);
        if (d.kind === "choice") {
          const p = d.distribution.probability[t][i], { q } = d.distribution, masked = d.allowed !== null && !d.allowed[this.step][i];
          fill.style.cssText = `left:0;width:${100 * p}%`;
          mark.style.display = "none";
          row.classList.toggle("taken", !over && d.taken[t].includes(i));
          row.classList.toggle("masked", masked);
          number.textContent = masked ? "masked" : over ? "–" : `${show(100 * p, 1)} %${q ? `  Q ${show(q[t][i], 2)}` : ""}`;
        } else {
          const mean = d.distribution.mean[t][i], std = d.distribution.std[t][i], at = (x) => 50 + 50 * Math.max(-1, Math.min(1, x));
          fill.style.cssText = `left:${at(mean - std)}%;width:${at(mean + std) - at(mean - std)}%`;
          mark.style.cssText = `left:${at(d.taken[t][i])}%`;
          number.textContent = over ? "–" : `${show(mean, 2)} ± ${show(std, 2)}`;
        }
      });
    }

    observation() {
      const d = this.data, values = d.observed[this.step], rows = d.saliency[this.cause];
      const pushes = rows && this.step < d.steps ? rows[this.step].map((x, i) => (x === null ? null : x * d.spread[i])) : null;
      const largest = pushes ? Math.max(1e-30, ...pushes.map((x) => Math.abs(x))) : 1;
      (this["ep-observation"] || []).forEach(({ row, fill, mark, number, push }, i) => {
        const { low, high, bounded } = d.observations[i], x = values[i];
        const at = (value) => 100 * Math.max(0, Math.min(1, (value - low) / (high - low || 1)));
        const zero = low < 0 && high > 0 ? at(0) : 0, here = at(x === null ? low : x);
        fill.style.cssText = `left:${Math.min(zero, here)}%;width:${Math.abs(here - zero)}%`;
        mark.style.cssText = `left:${here}%`;
        number.textContent = show(x) + (d.seen ? ` → ${show(d.seen[this.step][i], 2)}` : "");
        const share = pushes && pushes[i] !== null ? (50 * pushes[i]) / largest : 0;
        push.style.cssText = `left:${Math.min(50, 50 + share)}%;width:${Math.abs(share)}%`;
        push.title = pushes && pushes[i] !== null ? `gradient ${CAUSES[this.cause]}: ${show(rows[this.step][i], 5)}` : "";
        row.title = `${show(low)} to ${show(high)}${bounded ? "" : " (covered in this episode)"}`;
      });
    }

    draw() {
      const { canvas, data: d } = this, ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
      if (!width) return;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const pen = canvas.getContext("2d"), lanes = LANES.filter(([key]) => d[key]), tall = height / lanes.length;
      pen.scale(ratio, ratio);
      pen.font = "11px system-ui, sans-serif";
      lanes.forEach(([key, variable], lane) => {
        const other = d.scaled ? undefined : TOGETHER[key]; // one scale for both, unless the critic knows other rewards
        const list = [...d[key], ...(d[other] || [])].filter((x) => x !== null), low = Math.min(0, ...list), high = Math.max(...list, low + 1e-9);
        const y = (x) => (lane + 1) * tall - 5 - ((x - low) / (high - low)) * (tall - 22);
        pen.strokeStyle = colour("--line");
        pen.lineWidth = 1;
        pen.beginPath();
        pen.moveTo(0, (lane + 1) * tall - 0.5);
        pen.lineTo(width, (lane + 1) * tall - 0.5);
        pen.stroke();
        pen.strokeStyle = colour(variable);
        pen.lineWidth = 1.6;
        pen.beginPath();
        d[key].forEach((x, t) => { if (x !== null) pen.lineTo((t / d.steps) * width, y(x)); });
        pen.stroke();
        pen.strokeStyle = colour("--paper"); // around the number, so that a curve under it does not strike it out
        pen.lineWidth = 4;
        pen.fillStyle = colour("--dim");
        for (const [x, at] of [[high, lane * tall + 12], [low, (lane + 1) * tall - 3]]) {
          pen.strokeText(show(x, 2), 4, at);
          pen.fillText(show(x, 2), 4, at);
        }
      });
      if (d.attention && this.step < d.steps) {
        const weights = d.attention[this.step], most = Math.max(...weights);
        pen.fillStyle = colour("--c5");
        weights.forEach((weight, age) => {
          if (age > this.step) return;
          pen.globalAlpha = weight / most;
          pen.fillRect(((this.step - age) / d.steps) * width, height - 8, Math.max(2, width / d.steps), 8);
        });
        pen.globalAlpha = 1;
      }
      pen.fillStyle = colour("--cursor");
      pen.fillRect(Math.min(width - 2, Math.max(0, (this.step / d.steps) * width - 1)), 0, 2, height);
    }
  }

  let shown;
  setInterval(() => { // Gradio may put the recording's element in at any time
    const root = document.querySelector(".stride-episode[data-episode]");
    if (!root || root.dataset.opened === root.dataset.key) return;
    root.dataset.opened = root.dataset.key;
    if (shown) shown.close();
    shown = new Episode(root);
  }, 100);

  document.addEventListener("keydown", (event) => {
    const inside = event.target.closest ? event.target.closest("input, textarea, select, button, [role=tab], [contenteditable]") : null;
    if (!shown || !shown.root.offsetParent || event.ctrlKey || event.metaKey || event.altKey) return;
    if (inside && !inside.classList.contains("ep-slider") && !(inside.classList.contains("ep-button") && event.key !== " ")) return;
    const moves = { ArrowLeft: () => shown.nudge(-1), ArrowRight: () => shown.nudge(1), Home: () => shown.nudge(-1e9), End: () => shown.nudge(1e9), " ": () => shown.toggle() };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  });
})();
