// The frame: tabs are gone to by name, and the choice of a run is shown where a run is looked at.
window.strideTab = (name) => {
  const tabs = [...document.querySelectorAll("#tabs button[role=tab]")];
  tabs.find((tab) => tab.textContent.trim() === name)?.click();
};
new MutationObserver(() => {
  const tab = document.querySelector("#tabs button[role=tab][aria-selected=true]"), name = tab && tab.textContent.trim();
  if (!tab || document.body.dataset.room === name) return;
  document.body.dataset.room = name;
  tab.scrollIntoView({ block: "nearest", inline: "center" });
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["aria-selected"] });
