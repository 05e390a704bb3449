// What comes and goes as files: videos in, thumbnails of them, CSV and others out.
window.strideFiles = (() => {
  const CAUSES = { action: "of the action", value: "of the value" };
  const happened = (target, name) => new Promise((done) => target.addEventListener(name, done, { once: true }));

  // a text that a spreadsheet would take for a formula is set off by an apostrophe
  const cell = (text) => `"${String(text).replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;

  function save(name, ending, blob) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${name}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function csv(d) {
    const series = ["reward", "so_far", "to_go", "discounted", "value", "advantage", "td_error", "entropy", "moved"].filter((key) => d[key]);
    const shares = Object.keys(d.distribution), names = d.observations.map((o) => o.name);
    const gradients = Object.keys(d.saliency).filter((kind) => d.saliency[kind][0].some((x) => x !== null));
    const head = ["step", ...d.taken[0].map((_, i) => `action ${i}`), ...series,
      ...shares.flatMap((kind) => d.actions.map((name) => cell(`${kind} ${name}`))),
      ...names.map(cell), ...gradients.flatMap((kind) => names.map((name) => cell(`gradient ${CAUSES[kind]} by ${name}`)))];
    const rows = d.reward.map((_, t) => [t, ...d.taken[t], ...series.map((key) => d[key][t]), ...shares.flatMap((kind) => d.distribution[kind][t]),
      ...d.observed[t], ...gradients.flatMap((kind) => d.saliency[kind][t])].map((x) => (x === null ? "" : x)));
    return [head, ...rows].map((row) => row.join(",")).join("\n") + "\n";
  }

  async function fill(video, path) {
    const base = (window.gradio_config && window.gradio_config.root) || "";
    const answer = await fetch(`${base}/gradio_api/file=${encodeURI(path)}`);
    if (!answer.ok) return;
    video.blob = await answer.blob(); // whole, so that seeking needs no server
    const loaded = happened(video, "loadeddata");
    video.src = URL.createObjectURL(video.blob);
    await loaded;
  }

  // drawn by a second video, so that the one that is watched stays where it is
  async function thumbnails(source, d, count, put) {
    const video = document.createElement("video"), loaded = happened(video, "loadeddata");
    video.muted = true;
    video.src = source;
    await loaded;
    for (let i = 0; i < count; i++) {
      const step = Math.round((i * d.steps) / Math.max(1, count - 1)), picture = document.createElement("canvas"), there = happened(video, "seeked");
      video.currentTime = (step + 0.5) / d.fps;
      await there;
      Object.assign(picture, { width: 240, height: Math.round((240 * video.videoHeight) / video.videoWidth) });
      picture.getContext("2d").drawImage(video, 0, 0, picture.width, picture.height);
      if (!put(picture, step)) return;
    }
  }

  return { CAUSES, save, cell, csv, fill, thumbnails };
})();
