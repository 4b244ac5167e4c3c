/** The JSON that /api/plan?explain=1 answers, as far as the page reads it. */
export interface Account { name: string; bytes: number; low_bytes: number; high_bytes: number; source: string }
export interface Mark { tag: "rect" | "text" | "line"; key: string; text?: string; title?: string; [attribute: string]: string | number | undefined }
export interface Drawing { height: number; sentence: string; marks: Mark[] }
export interface MemoryFigure {
  gpus: number; starts: boolean; total_bytes: number; accounts: Account[]; weights_bytes: number; kv_bytes: number; kept_bytes: number;
  over_bytes: number; request_bytes: number; stored_bytes: number; room: number | null; users: number; running: number; waiting: number;
  running_bytes: number; free_bytes: number; left_bytes: number; short_bytes: number; drawing: Drawing;
}
export interface Kind {
  kind: string; layers: number; factors: { name: string; value: number }[]; bits: number; scales: boolean; window_tokens: number | null;
  bytes_per_layer: number; entry_bytes: number; bytes_per_token: number; bytes_per_request: number; sentence: string;
}
export interface Turn { key: string; steps: number[] }
export interface Turns { bits: { value: number; kv_dtype: string }[]; config?: Scenario; layers?: Turn; heads?: Turn; width?: Turn }
export interface PriceFigure { turns: Turns; attention: string; kinds: Kind[]; runs: { kinds: number[]; layers: number }[]; times_8k_to_128k: number | null; read_s: number | null }
export interface CurvePoint { batch: number; weight_bytes: number; cache_bytes: number; bytes_per_output_token: number; weight_bytes_per_output_token: number; cache_bytes_per_output_token: number }
export interface StepFigure {
  total_bytes: number; cache_bytes: number; bytes_per_output_token: number; weight_bytes_per_output_token: number; cache_bytes_per_output_token: number; alone_bytes: number; times_cheaper: number;
  overtaken: boolean; compute_batch: number | null; compute_known: boolean; curve: CurvePoint[];
}
export interface CardRow { key: string; label: string; value: number | null; low: number | null; high: number | null; form: string; needs: string; says: string; figure: string }
export interface Mended { message: string; fix: string; key: string }
export interface CardFigure {
  colour: string; sentence: string; replicas: number; rows: CardRow[]; reasons: Mended[]; warnings: Mended[];
  layout: { says: string; chosen: boolean; why: string; [degree: string]: any }; limits: Record<string, { flag: string; value: any }>;
  facts: { weights: string; version: string; name: string; usd_per_hour: number | null; gpu: Scenario };
}
export interface Explanation { figure: string; label: string; value: number; unit: string; formula: string; numbers: string; source: string; of?: string[] }
export interface Scenario { [key: string]: any }
export interface Answer {
  scenario: Scenario;
  weights: { params: number; active_params: number; bytes: number };
  kv: { bytes_per_token: number; bytes_per_request: number; bytes_per_token_per_gpu: number; layers: { kind: string; count: number; bytes_per_token: number }[] };
  memory: { gpu_bytes: number; accounts: Account[]; kv_bytes: number };
  capacity: any;
  step: { batch: number; bytes: { weights: number; kv: number; state: number }; crossover_batch: number | null; seconds: number | null; seconds_low: number | null; seconds_high: number | null };
  serving: { tpot_s: number | null; tpot_low_s: number; tpot_high_s: number; ttft_s: number | null; ttft_low_s: number; ttft_high_s: number };
  cost: { usd_per_hour: number | null; usd_per_million_output_tokens: number | null; usd_per_user_hour: number | null };
  verdict: { fits: boolean; binding: string; sentence: string };
  warnings: string[];
  explanations: Explanation[];
  figures: { traits: string[]; memory: MemoryFigure; price: PriceFigure; step: StepFigure; card: CardFigure };
  take_away: { link: string; command: string; python: string; assumptions: { what: string; taken: string; source: string }[] };
}
export interface Failure { error: { field: string; value: unknown; message: string; fix: string } }
export interface Table { head: string[]; rows: (string | number)[][] }
/** One pass of a simulation: what changed, as `/api/simulate` sends it. */
export interface Frame {
  start_s: number; held: number; shared: number; kept: number; free: number; running: number; waiting: number; preempted_waiting: number;
  blocks?: number[]; came?: number[]; admitted?: number[]; preempted?: number[]; done?: number[]; dropped?: number[]; first?: [number, number][]; gaps?: [number, number][];
}
export interface CliffPoint {
  value: number; ttft_p50_s: number | null; ttft_p99_s: number | null; tpot_p99_s: number | null; output_tokens_per_s: number; prefix_hit_ratio: number; preemptions: number;
}
export interface ReuseAnswer {
  references: number; hit_blocks: number; token_hit_ratio: number; curve: { blocks: number; hit_ratio: number }[]; needs: { share: number; hit_ratio: number; blocks: number }[];
}
