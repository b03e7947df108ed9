// Runs before the first paint, so that a chosen theme does not flash. Without a choice, the system's theme holds.
(() => {
  const root = document.documentElement;
  const kept = () => { try { return localStorage.getItem("livegnn-theme"); } catch { return null; } };
  const chosen = kept();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
})();
