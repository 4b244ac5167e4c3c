/** What the page uses of lit. */
export class LitElement extends HTMLElement {
  static properties: Record<string, { attribute?: boolean; state?: boolean }>;
  connectedCallback(): void;
  disconnectedCallback(): void;
  createRenderRoot(): Element | DocumentFragment;
  requestUpdate(): void;
  readonly updateComplete: Promise<boolean>;
  render(): unknown;
}
export const html: (strings: TemplateStringsArray, ...values: unknown[]) => unknown;
export const svg: (strings: TemplateStringsArray, ...values: unknown[]) => unknown;
export const nothing: symbol;
export const classMap: (classes: Record<string, boolean>) => unknown;
export const repeat: (items: unknown[], key: unknown, template: unknown) => unknown;
