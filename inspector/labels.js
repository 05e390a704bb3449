// Tags and note of a run are edited in a dialog of its own: the page under it may be redrawn meanwhile.
(() => {
  const token = () => document.querySelector("meta[name=stride-token]")?.content || "";
  const make = (name, properties, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };
  const words = (text) => text.split(/[\s,]+/).filter(Boolean);

  function edit(data) {
    const tags = make("input", { value: data.tags, className: "field", autocomplete: "off", spellcheck: false });
    const note = make("textarea", { value: data.note, className: "field", maxLength: +data.most, rows: 4 });
    const problem = make("p", { className: "problem" }), save = make("button", { type: "submit", className: "button", textContent: "Save" });
    problem.setAttribute("role", "alert");
    const cancel = make("button", { type: "button", className: "button", textContent: "Cancel" });
    const form = make("form", {}, make("h3", { textContent: data.run }), make("label", {}, "tags, separated by spaces", tags),
      make("label", {}, "note, one line", note), problem, make("div", { className: "buttons" }, cancel, save));
    const dialog = make("dialog", { className: "labels-dialog" }, form);
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    note.addEventListener("input", () => { note.value = note.value.replace(/[\r\n]+/g, " "); });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      save.disabled = true;
      const body = { run: data.run, tags: words(tags.value), note: note.value.trim(), old_tags: words(data.tags), old_note: data.note };
      try {
        const base = (window.gradio_config && window.gradio_config.root) || "";
        const headers = { "Content-Type": "application/json", "X-Stride-Token": token() };
        const answer = await fetch(`${base}/stride/labels`, { method: "POST", headers, body: JSON.stringify(body) });
        if (answer.ok) return dialog.close();
        problem.textContent = (await answer.json()).detail;
      } catch (error) {
        problem.textContent = "the inspector does not answer; is it still running?";
      }
      save.disabled = false;
    });
    document.body.append(dialog);
    dialog.showModal();
    tags.focus();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.(".labels .edit");
    if (button) edit({ ...button.closest(".labels").dataset });
  });
})();
