// Numbers as people read them: thousands grouped, three digits that matter, a unit.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const NONE = "–";
const MINUTE = 60, HOUR = 3600, DAY = 86400;

export const count = (value) => (value == null ? NONE : whole.format(value));

// Three digits that matter, up to `most` of them after the point: 0.042, 7.48, 21.8, 4,096.
export function digits(value, most = 2) {
  if (value == null || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  const places = size === 0 || size >= 100 ? 0 : size >= 10 ? Math.min(1, most) : most;
  return new Intl.NumberFormat("en-US", { minimumFractionDigits: places, maximumFractionDigits: places }).format(value);
}

export function milliseconds(value) {
  if (value == null) return [NONE, "ms"];
  return value >= 1000 ? [digits(value / 1000), "s"] : [digits(value), "ms"];
}

export const timeText = (value) => milliseconds(value).join(" ");

export function duration(seconds) {
  if (seconds == null) return NONE;
  const s = Math.floor(seconds);
  if (s < MINUTE) return `${s} s`;
  if (s < HOUR) return `${Math.floor(s / MINUTE)} min ${s % MINUTE} s`;
  if (s < DAY) return `${Math.floor(s / HOUR)} h ${Math.floor((s % HOUR) / MINUTE)} min`;
  return `${count(Math.floor(s / DAY))} d ${Math.floor((s % DAY) / HOUR)} h`;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  for (; value >= 1024 && place < units.length - 1; place += 1) value /= 1024;
  return `${place ? digits(value, value < 10 ? 1 : 0) : count(value)} ${units[place]}`;
}

export const percent = (part, all) => (all ? `${digits((100 * part) / all)} %` : NONE);

export const timeOfDay = (ms) => clock.format(new Date(ms));

// A share or a change: with its sign where `signed`, three digits.
export function amount(value, signed = false) {
  if (value == null || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  const text = size === 0 ? "0" : size < 0.001 || size >= 1e6 ? value.toExponential(1) : size < 1 ? value.toFixed(3) : digits(value);
  const plain = text.replace("-", "−");
  return signed && value > 0 ? `+${plain}` : plain;
}

export const prediction = (value, isProbability) =>
  value == null ? NONE : isProbability ? value.toFixed(3) : String(Number(value));
