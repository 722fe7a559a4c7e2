// Boxes that scroll can be scrolled by keyboard, too.
(() => {
  const boxes = "article .highlight pre, article .table-wrapper";
  const mark = () =>
    document.querySelectorAll(boxes).forEach((box) => {
      const scrolls = box.scrollWidth > box.clientWidth;
      if (scrolls) {
        box.tabIndex = 0;
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", box.matches("pre") ? "Code" : "Table");
      } else {
        ["tabindex", "role", "aria-label"].forEach((name) => box.removeAttribute(name));
      }
    });
  addEventListener("DOMContentLoaded", () => {
    document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
    document.querySelector(".toc-drawer")?.setAttribute("aria-label", "This page");
    mark();
  });
  addEventListener("load", mark);
  addEventListener("resize", mark);
})();
