/** The JSON that the lower sections are answered, as far as the page reads it. */
import type { Explanation, Scenario } from "./types";

interface Sectioned { scenario: Scenario; explanations: Explanation[]; take_away: { command: string } }
export interface Tier { name: string; bytes: number | null; bytes_per_s: number | null }
export interface Rung { name: string; label: string; below: boolean; larger: string; against: string }
export interface TierPoint { tokens: number; bytes_per_gpu: number; recompute_s: number; fetch_s: { [tier: string]: number } }
export interface TiersFigure {
  machine: string; cards: number; stand_in: string | null; rungs: Rung[]; link: { name: string; bytes_per_s: number } | null; tokens: number;
  below: { name: string; label: string }[]; curve: TierPoint[]; sentence: string;
}
export interface TiersAnswer extends Sectioned {
  tiers: { tiers: Tier[]; crossings?: { name: string; load_weights_s: number; fetch_s: number; crossover_tokens: number | null }[] };
  figures: { tiers: TiersFigure };
}
export interface LeverFigures { requests: number | null; step_s: number | null; token_s: number | null; ttft_s: number | null; usd_per_million_output_tokens: number | null }
export interface Effect { effect: string; source: string }
export interface Pulled { id: string; label: string; after: LeverFigures; needs: string[]; one_flag: boolean; easy: boolean; quality: Effect | null; latency: Effect | null }
export interface LeversAnswer extends Sectioned {
  before: LeverFigures; levers: Pulled[]; left_out: { id: string; label: string; why: string }[];
  figures: {
    levers: {
      steps: { id: string; from: number; to: number; requests: number }[]; before: number; goal: number; reached: number; after: LeverFigures;
      families: { [id: string]: string }; rankings: { [by: string]: string[] }; sentence: string;
    };
  };
}
export interface ServedAnswer extends Sectioned {
  served: { before: { [key: string]: number | null }; levers: { id: string; label: string; after: { [key: string]: number | null } }[] };
  left_out: { id: string; label: string; why: string }[]; figures: { served: { notes: string[] } };
}
export interface Stair {
  key: string; label: string; level: boolean; from: number; to: number; change: number; low?: number; high?: number; source: string; formula: string;
}
export interface FileLine { name: string; predicted_bytes: number | null; printed_bytes: number | null; difference_bytes: number | null; reason: string; flag: string }
export interface RealityAnswer extends Sectioned {
  figures: {
    reality: {
      engine: string; stairs: Stair[]; lengths: { id: string; label: string; says: string; workload: Scenario }[]; length: string;
      stands_in: string[]; sentence: string; against?: string;
    };
  };
  asked?: Scenario;
  file?: { title: string; lines: FileLine[]; difference: { sentence: string; reason: string; flag: string; account: string } | null; notes: string[] };
}
