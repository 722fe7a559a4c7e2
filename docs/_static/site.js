// Boxes that scroll can be scrolled by keyboard, too. Cells of tables with many columns know the name of their column.
(() => {
  const boxes = "article .highlight pre, article .table-wrapper, article .diagram";
  const mark = () =>
    document.querySelectorAll(boxes).forEach((box) => {
      const scrolls = box.scrollWidth > box.clientWidth;
      if (scrolls) {
        box.tabIndex = 0;
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", box.matches("pre") ? "Code" : box.matches(".diagram") ? "Diagram" : "Table");
      } else {
        ["tabindex", "role", "aria-label"].forEach((name) => box.removeAttribute(name));
      }
    });
  const name_cells = (table) => {
    const names = Array.from(table.querySelectorAll("thead tr > *"), (one) => one.textContent.trim());
    if (names.length < 3) return;
    table.classList.add("stacked");
    // A narrow screen shows rows as boxes, which would take their meaning from screen readers.
    const roles = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", th: "columnheader", td: "cell" };
    [table, ...table.querySelectorAll("thead, tbody, tr, th, td")].forEach((one) =>
      one.setAttribute("role", roles[one.localName]),
    );
    table.querySelectorAll("tbody tr").forEach((row) =>
      Array.from(row.cells).forEach((cell, place) => {
        if (place && names[place]) cell.dataset.column = names[place];
      }),
    );
  };
  addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("article table.docutils").forEach(name_cells);
    document.querySelectorAll(".indextable").forEach((one) => one.setAttribute("role", "presentation"));
    document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
    document.querySelector(".toc-drawer")?.setAttribute("aria-label", "This page");
    mark();
  });
  addEventListener("load", mark);
  addEventListener("resize", mark);
})();
