/** What the page uses of d3-scale and d3-shape. */
export interface Scale {
  (value: number): number;
  domain(): number[];
  nice(): Scale;
  ticks(count?: number): number[];
}
export function scaleLinear(domain: number[], range: number[]): Scale;
export function scaleLog(domain: number[], range: number[]): Scale;
export function line<T>(x: (point: T) => number, y: (point: T) => number): (points: T[]) => string | null;
export function area<T>(x: (point: T) => number, y0: (point: T) => number, y1: (point: T) => number): (points: T[]) => string | null;
