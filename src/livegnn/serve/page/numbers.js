// The strip of numbers at the top, and what says whether they are live.

import { spark } from "./charts.js";
import { byId, setText } from "./dom.js";
import * as format from "./format.js";

const KEPT = 120;
const KEYS = ["at", "seconds", "updates", "p50_ms", "p99_ms", "waiting"];

// The newest two minutes, put together of what each answer brings.
export class Series {
  constructor() { this.clear(); }

  clear() {
    this.number = 0;
    this.columns = Object.fromEntries(KEYS.map((key) => [key, []]));
    this.changed = {};
  }

  take(series) {
    if (series.number < this.number) this.clear();  // another process
    this.number = series.number;
    const add = (kept, more) => { kept.push(...more); kept.splice(0, kept.length - KEPT); };
    for (const key of KEYS) add(this.columns[key], series[key]);
    for (const [name, more] of Object.entries(series.changed)) add((this.changed[name] ??= []), more);
  }

  perSecond(values) { return values.map((value, place) => value / this.columns.seconds[place]); }
}

export function showNumbers(stats, engine, series) {
  const { columns } = series;
  setText("n-rate", format.digits(stats.updates_per_s, 1));
  setText("s-rate", `${format.digits(stats.requests_per_s, 1)} requests/s · ${format.count(stats.updates)} in all`);
  const [p50, unit] = format.milliseconds(stats.freshness_ms.p50);
  setText("n-p50", p50);
  setText("u-p50", unit);
  setText("s-fresh", `p99 ${format.timeText(stats.freshness_ms.p99)} · max ${format.timeText(stats.freshness_ms.max)}`);
  setText("n-affected", format.digits(engine?.affected, 1));
  const changed = series.perSecond(series.changed[engine?.name] ?? []);
  setText("s-affected", `${format.count(mean(changed.slice(-10)))} outputs/s change`);
  setText("n-queue", format.count(stats.queue.updates));
  setText("s-queue", `room for ${format.count(stats.queue.updates_max)} · ${format.count(stats.queue.refused)} refused`);
  setText("n-version", format.count(stats.version));
  setText("s-version", `offset ${format.count(stats.offset)} of the log`);
  setText("s-uptime", `up for ${format.duration(stats.uptime_s)}`);
  setText("n-snapshot", format.duration(stats.snapshot.age_s));
  setText("s-snapshot", `version ${format.count(stats.snapshot.version)}`);
  setText("s-behind", stats.snapshot.behind === 1 ? "1 version since" : `${format.count(stats.snapshot.behind)} versions since`);
  byId("strip").dataset.refused = stats.queue.refused > 0;
  showSparks(series, changed, engine);
}

function showSparks(series, changed, engine) {
  const { columns } = series;
  const rate = (value) => `${format.digits(value, 1)}/s`;
  spark(byId("c-rate"), [{ name: "", values: series.perSecond(columns.updates) }], KEPT, "Updates a second", rate);
  const fresh = [{ name: "p50 ", values: columns.p50_ms }, { name: "p99 ", values: columns.p99_ms }];
  spark(byId("c-fresh"), fresh, KEPT, "Freshness", format.timeText);
  spark(byId("c-affected"), [{ name: "", values: changed }], KEPT, "Outputs that change in a second", (value) => `${format.count(value)} outputs/s`);
  spark(byId("c-queue"), [{ name: "", values: columns.waiting }], KEPT, "Updates that wait", (value) => `${format.count(value)} updates`);
}

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

export function showState(kind, text) {
  const state = byId("state");
  if (state.dataset.state !== kind) state.dataset.state = kind;
  document.body.dataset.state = kind;
  setText("state-text", text);
}

export function notice(text) {
  const element = byId("notice");
  setText(element, text);
  element.hidden = !text;
}
