"use strict";
// Filters and opens the forks. Without script every fork is there and opens by hand.
(function () {
  const forks = Array.from(document.querySelectorAll("details.fork"));
  const byId = (id) => document.getElementById(id);

  function show() {
    const kind = byId("fork-kind").value;
    const group = byId("fork-class").value;
    const text = byId("fork-text").value.toLowerCase();
    let shown = 0;
    for (const fork of forks) {
      const fits = (!kind || fork.dataset.kind === kind)
        && (!group || fork.dataset.class === group)
        && (!text || fork.textContent.toLowerCase().includes(text));
      fork.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    byId("fork-count").textContent = shown + " of " + forks.length + " shown";
  }

  function openAll(open) {
    for (const fork of forks) { fork.open = open; }
  }

  if (forks.length > 0) {
    document.querySelector(".filters").hidden = false;
    for (const id of ["fork-kind", "fork-class", "fork-text"]) {
      byId(id).addEventListener("input", show);
    }
    byId("fork-open").addEventListener("click", () => openAll(true));
    byId("fork-close").addEventListener("click", () => openAll(false));
    show();
  }

  // Paper cannot be unfolded: print everything, then fold it again.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = Array.from(document.querySelectorAll("details:not([open])"));
    for (const one of folded) { one.open = true; }
  });
  window.addEventListener("afterprint", () => {
    for (const one of folded) { one.open = false; }
  });
}());
