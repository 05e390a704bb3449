// The table of runs: a press on a row opens it, ticks and opened groups are kept while the table is redrawn under them.
const chosen = new Set(), open = new Set();
const AGES = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [30 * 86400, 86400, "d"]];
const members = (group) => [...element.querySelectorAll("tr.member")].filter((row) => row.dataset.group === group);
function age(at) {
  const seconds = Math.max(0, Date.now() / 1000 - at), [, size, unit] = AGES.find(([most]) => seconds < most) || [];
  return size ? `${Math.floor(seconds / size)} ${unit} ago` : null;
}
function apply() {
  for (const row of element.querySelectorAll("tr[data-run]")) {
    Object.assign(row.querySelector("input"), { checked: chosen.has(row.dataset.run), indeterminate: false });
    row.classList.toggle("checked", chosen.has(row.dataset.run));
    if (row.dataset.group !== undefined && row.hidden === open.has(row.dataset.group)) row.hidden = !row.hidden;
  }
  for (const row of element.querySelectorAll("tr[data-fold]")) {
    const rows = members(row.dataset.fold), ticked = rows.filter((each) => chosen.has(each.dataset.run)).length;
    const box = row.querySelector("input"), fold = row.querySelector(".fold");
    box.checked = ticked === rows.length;
    box.indeterminate = ticked > 0 && ticked < rows.length;
    fold.setAttribute("aria-expanded", open.has(row.dataset.fold));
  }
  for (const time of element.querySelectorAll("time[data-at]")) {
    const text = age(+time.dataset.at) || time.title.slice(0, 10);
    if (time.textContent !== text) time.textContent = text;
  }
  const box = element.querySelector(".runs");
  if (box && window.strideFilter) {
    for (const key of ["seed", "group"]) window.strideFilter.offer(key, box.dataset[`${key}s`].split(" ").filter(Boolean));
    window.strideFilter.ticked([...chosen]);
  }
}
element.addEventListener("click", (event) => {
  const heading = event.target.closest("[data-sort]"), row = event.target.closest("tr[data-run], tr[data-fold]");
  if (heading) return window.strideFilter.sort(heading.dataset.sort);
  if (!row) return;
  const { run, fold } = row.dataset, box = event.target.closest("td") === row.cells[0];
  if (!box && run) return trigger("select", { run });
  if (!box) {
    open.has(fold) ? open.delete(fold) : open.add(fold);
    return apply();
  }
  const runs = run ? [run] : members(fold).map((each) => each.dataset.run), input = row.querySelector("input");
  const tick = event.target === input ? input.checked : !runs.every((each) => chosen.has(each));
  for (const each of runs) tick ? chosen.add(each) : chosen.delete(each);
  apply();
});
// Gradio changes rows in place; what is as it should be is left alone, so this comes to an end
const changed = () => { apply(); requestAnimationFrame(apply); }; // ticks are taken away without a word, after the rest
new MutationObserver(changed).observe(element, { childList: true, characterData: true, subtree: true, attributes: true, attributeFilter: ["class", "data-run", "data-fold", "hidden"] });
apply();
