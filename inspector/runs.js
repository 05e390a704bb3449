// The table of runs: a click on a row chooses it, boxes are kept while the table is redrawn under them.
const chosen = new Set();
function apply() {
  for (const row of element.querySelectorAll("tr[data-run]")) {
    row.querySelector("input").checked = chosen.has(row.dataset.run);
    row.classList.toggle("checked", chosen.has(row.dataset.run));
  }
}
element.addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-run]");
  if (!row) return;
  if (event.target.closest("td") !== row.cells[0]) return trigger("select", { run: row.dataset.run });
  const id = row.dataset.run;
  if (event.target.tagName === "INPUT" ? event.target.checked : !chosen.has(id)) chosen.add(id);
  else chosen.delete(id);
  apply();
  trigger("submit", { runs: [...chosen] });
});
new MutationObserver(apply).observe(element, { childList: true, subtree: true });
