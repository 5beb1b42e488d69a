"""Cases that can't run on the CPU provider alone, by what they need. Strict: none may pass.

A session runs them too: the core runs bodies, and expands what a schema defines as a function.
"""

from __future__ import annotations

import importlib.util

CASES_OF_ONNX = "1.23"
"""The onnx release whose cases are listed."""

NEEDS = {
    "If, which the core runs": (
        "test_affine_grid_2d_expanded",
        "test_affine_grid_2d_align_corners_expanded",
        "test_affine_grid_3d_expanded",
        "test_affine_grid_3d_align_corners_expanded",
        "test_if",
        "test_if_seq",
        "test_if_opt",
    ),
    "FlexAttention, which has body graphs": (
        "test_flexattention",
        "test_flexattention_scaled",
        "test_flexattention_gqa",
        "test_flexattention_diff_head_sizes",
        "test_flexattention_score_mod",
        "test_flexattention_prob_mod",
        "test_flexattention_fp16",
        "test_flexattention_double",
        "test_flexattention_causal_mask",
        "test_flexattention_soft_cap",
        "test_flexattention_relative_positional",
    ),
    "Scan, which the core runs": (
        "test_linear_attention_linear_expanded",
        "test_linear_attention_gated_expanded",
        "test_linear_attention_gated_per_head_decay_expanded",
        "test_linear_attention_delta_expanded",
        "test_linear_attention_gated_delta_expanded",
        "test_linear_attention_gated_delta_beta_scalar_expanded",
        "test_linear_attention_gated_delta_gqa_expanded",
        "test_linear_attention_gated_delta_mqa_expanded",
        "test_linear_attention_decode_step_expanded",
        "test_linear_attention_prefill_with_past_expanded",
        "test_linear_attention_no_past_explicit_zeros_expanded",
        "test_linear_attention_explicit_scale_expanded",
        "test_linear_attention_fp16_expanded",
        "test_linear_attention_linear_t1_no_past_expanded",
        "test_scan_sum",
        "test_scan9_sum",
        "test_scan9_multi_state",
        "test_scan9_scalar",
    ),
    "Loop, which the core runs": (
        "test_loop11",
        "test_loop13_seq",
        "test_loop16_seq_none",
        "test_range_float_type_positive_delta_expanded",
        "test_range_float16_type_positive_delta_expanded",
        "test_range_bfloat16_type_positive_delta_expanded",
        "test_range_int32_type_negative_delta_expanded",
        "test_sequence_map_identity_1_sequence_expanded",
        "test_sequence_map_identity_2_sequences_expanded",
        "test_sequence_map_identity_1_sequence_1_tensor_expanded",
        "test_sequence_map_add_2_sequences_expanded",
        "test_sequence_map_add_1_sequence_1_tensor_expanded",
        "test_sequence_map_extract_shapes_expanded",
    ),
    "SequenceMap, which has a body graph": (
        "test_sequence_map_identity_1_sequence",
        "test_sequence_map_identity_2_sequences",
        "test_sequence_map_identity_1_sequence_1_tensor",
        "test_sequence_map_add_2_sequences",
        "test_sequence_map_add_1_sequence_1_tensor",
        "test_sequence_map_extract_shapes",
    ),
}

IMAGES = (
    "test_image_decoder_decode_jpeg_rgb",
    "test_image_decoder_decode_jpeg_grayscale",
    "test_image_decoder_decode_jpeg_bgr",
    "test_image_decoder_decode_jpeg2k_rgb",
    "test_image_decoder_decode_bmp_rgb",
    "test_image_decoder_decode_png_rgb",
    "test_image_decoder_decode_tiff_rgb",
    "test_image_decoder_decode_webp_rgb",
    "test_image_decoder_decode_pnm_rgb",
)

if importlib.util.find_spec("PIL") is None:
    NEEDS["Pillow, which is not installed"] = IMAGES

NO_FIXED_ANSWER = frozenset(
    {
        "test_bernoulli",
        "test_bernoulli_double",
        "test_bernoulli_double_expanded",
        "test_bernoulli_expanded",
        "test_bernoulli_seed",
        "test_bernoulli_seed_expanded",
    }
)
"""Random draws: only type and shape can be compared."""
