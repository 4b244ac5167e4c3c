"""The names of llama-server's flags: short ones, and those that kvroom passes over."""

from __future__ import annotations

SHORT = {
    "c": "ctx_size",
    "np": "parallel",
    "n_parallel": "parallel",
    "kvu": "kv_unified",
    "no_kvu": "no_kv_unified",
    "b": "batch_size",
    "ub": "ubatch_size",
    "fa": "flash_attn",
    "ctk": "cache_type_k",
    "ctv": "cache_type_v",
    "ngl": "n_gpu_layers",
    "gpu_layers": "n_gpu_layers",
    "sm": "split_mode",
    "ts": "tensor_split",
    "mg": "main_gpu",
    "kvo": "kv_offload",
    "nkvo": "no_kv_offload",
    "cmoe": "cpu_moe",
    "ncmoe": "n_cpu_moe",
    "ot": "override_tensor",
    "fitt": "fit_target",
    "fitc": "fit_ctx",
    "mm": "mmproj",
    "mla": "mla_use",
    "draft": "draft_max",
    "draft_n": "draft_max",
}
"""A flag's short name → its long one."""

_NAMES = """
    alias api_key api_key_file api_prefix attention_max_batch cache_list cache_ram cache_reuse
    chat_template chat_template_file chat_template_kwargs check_tensors cont_batching context_shift
    control_vector control_vector_layer_range control_vector_scaled cpu_mask cpu_mask_batch
    cpu_moe_draft cpu_range cpu_range_batch cpu_strict cpu_strict_batch ctx_checkpoints
    ctx_size_draft device device_draft direct_io dry_allowed_length dry_base dry_multiplier
    dry_penalty_last_n dry_sequence_breaker dynatemp_exp dynatemp_range embedding embeddings
    escape fit_print flash_attention fused_moe fmoe gpu_layers_draft grammar grammar_file
    graph_reduce hf_file hf_file_v hf_repo hf_repo_draft hf_repo_v hf_token host ignore_eos
    image_max_tokens image_min_tokens jinja json_schema json_schema_file keep list_devices
    load_mode log_colors log_disable log_file log_prefix log_timestamps log_verbosity logit_bias
    lookup_cache_dynamic lookup_cache_static lora lora_init_without_apply lora_scaled media_path
    metrics min_p mirostat mirostat_ent mirostat_lr mlock mmap mmproj_auto mmproj_url model
    model_draft model_url model_vocoder models_autoload models_dir models_max models_preset
    n_cpu_ffn n_cpu_moe_draft n_gpu_layers_draft n_predict no_cache_prompt no_cont_batching
    no_context_shift no_direct_io no_escape no_host no_jinja no_kv_offload_draft no_mmap
    no_mmproj no_mmproj_auto no_op_offload no_perf no_prefill_assistant no_repack no_slots
    no_warmup no_webui numa offline op_offload override_kv override_tensor_draft path perf poll
    poll_batch pooling port predict prefill_assistant presence_penalty prio prio_batch props
    reasoning_budget reasoning_format repack repeat_last_n repeat_penalty frequency_penalty
    reranking reverse_prompt rope_freq_base rope_freq_scale rope_scale rope_scaling rpc rtr
    run_time_repack sampler_seq samplers seed sleep_idle_seconds slot_prompt_similarity
    slot_save_path slots smart_expert_reduction spec_draft_n_min spec_draft_p_min special
    spm_infill ssl_cert_file ssl_key_file draft_min draft_p_min cache_type_k_draft
    cache_type_v_draft tags temp threads threads_batch threads_batch_draft threads_draft
    threads_http timeout top_k top_n_sigma top_p typical tts_use_guide_tokens ui verbose
    verbose_prompt verbosity vulkan_device warmup webui webui_config worst_graph_tokens
    xtc_probability xtc_threshold yarn_attn_factor yarn_beta_fast yarn_beta_slow yarn_ext_factor
    yarn_orig_ctx cache_prompt defrag_thold grp_attn_n grp_attn_w amb
"""
OTHERS = frozenset(_NAMES.split())
