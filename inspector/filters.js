// The line of words above the table of runs: menus and headings write into it, and it alone says what is shown.
const line = element.querySelector("#filter"), menus = [...element.querySelectorAll("select")];
const terms = () => line.value.split(/\s+/).filter(Boolean);
const keyOf = (term) => (term.match(/^([a-z]+)(?::|>=|<=|>|<)./i) || [])[1];
let waiting, ticked = [];
function say(delay) {
  const said = terms();
  for (const menu of menus) {
    const term = said.find((each) => keyOf(each) === menu.dataset.key) || "";
    if (term && ![...menu.options].some((option) => option.value === term)) menu.append(new Option(term, term));
    menu.value = term;
    menu.classList.toggle("set", term !== "");
  }
  clearTimeout(waiting);
  waiting = setTimeout(() => trigger("input", { words: line.value }), delay);
}
function put(key, term) {
  line.value = [...terms().filter((each) => keyOf(each) !== key), term].filter(Boolean).join(" ");
  say(0);
}
line.addEventListener("input", () => say(200));
for (const menu of menus) menu.addEventListener("change", () => put(menu.dataset.key, menu.value));
element.querySelector("#compare-ticked").addEventListener("click", () => trigger("submit", { runs: ticked }));
window.strideFilter = {
  sort(key) {
    const now = terms().find((each) => each.startsWith("sort:")) || "sort:-started", other = key.startsWith("-") ? key.slice(1) : `-${key}`;
    put("sort", now === `sort:${key}` ? `sort:${other}` : `sort:${key}`);
  },
  offer(key, values) {
    const menu = menus.find((each) => each.dataset.key === key), there = [...menu.options].map((option) => option.value);
    for (const value of values) if (!there.includes(`${key}:${value}`)) menu.append(new Option(`${key} ${value}`, `${key}:${value}`));
  },
  ticked(runs) {
    const button = element.querySelector("#compare-ticked");
    ticked = runs;
    button.disabled = runs.length < 2;
    button.textContent = runs.length ? `Compare ${runs.length}` : "Compare";
  },
};
