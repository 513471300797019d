"""Writes a SmolVLA checkpoint with random weights, as LeRobot saves one, without a network."""

from pathlib import Path

import checkpoints
import torch
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMForConditionalGeneration, SmolVLMImageProcessor, SmolVLMProcessor
from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor

TEXT = [
    "Pick up the red cube and place it in the left bin.",
    "Stack the blue block on the green one, then push the drawer closed.",
    "Grasp the screwdriver; hand it over to the other arm.",
]
TASKS = ["Pick up the red cube.", "Stack the blue block on the green one, then push the yellow drawer closed"]

SPECIAL = {
    "fake_image_token": "<fake_token_around_image>",
    "image_token": "<image>",
    "end_of_utterance_token": "<end_of_utterance>",
    "global_image_token": "<global-img>",
}

# A real SmolVLA's shape, with a tokenizer of only a few hundred words.
REAL_VISION = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 512, "patch_size": 16}
REAL_TEXT = {
    "hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 15, "num_key_value_heads": 5,
    "head_dim": 64, "vocab_size": 49280, "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "max_position_embeddings": 8192,
}  # fmt: skip
SMALL_VISION = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 128, "patch_size": 16}
SMALL_TEXT = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 16, "vocab_size": 400, "rms_norm_eps": 1e-5, "max_position_embeddings": 1024,
}  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of a few hundred words."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *SPECIAL.values()]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(TEXT * 4, trainers.BpeTrainer(vocab_size=360, special_tokens=special, initial_alphabet=alphabet, show_progress=False))
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>", unk_token="<|endoftext|>", extra_special_tokens=SPECIAL
    )


def vlm(folder: Path, vision: dict, text: dict) -> None:
    """The language model's folder, without weights."""
    words = tokenizer()
    image = words.convert_tokens_to_ids("<image>")
    config = SmolVLMConfig(
        vision_config=vision, text_config={"model_type": "llama", "pad_token_id": words.pad_token_id} | text, scale_factor=4,
        image_token_id=image, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    config.save_pretrained(folder)
    side = {"longest_edge": vision["image_size"]}
    pictures = SmolVLMImageProcessor(size=side, max_image_size=side)
    SmolVLMProcessor(pictures, words, SmolVLMVideoProcessor(size=side, max_image_size=side)).save_pretrained(folder)


def make(folder: Path, vision: dict = SMALL_VISION, text: dict = SMALL_TEXT, cameras: dict[str, tuple[int, int]] | None = None, bf16: bool = False, **config: object) -> Path:
    """Makes the checkpoint folder/policy, and the language model's in folder/vlm. bf16: stores in bfloat16 the weights that
    LeRobot keeps in it after load_vlm_weights, as in the published checkpoint."""
    cameras = cameras or {"front": (60, 80), "wrist": (96, 64)}
    vlm(folder / "vlm", vision, text)
    torch.manual_seed(5)
    if bf16:
        SmolVLMForConditionalGeneration(SmolVLMConfig.from_pretrained(folder / "vlm")).to(torch.bfloat16).save_pretrained(folder / "vlm")
    side = vision["image_size"]
    inputs, outputs = checkpoints.features(cameras)
    made = SmolVLAConfig(
        vlm_model_name=str(folder / "vlm"), load_vlm_weights=bf16, device="cpu", push_to_hub=False,
        input_features=inputs, output_features=outputs, **{"resize_imgs_with_padding": (side, side)} | config,
    )  # fmt: skip
    torch.manual_seed(7)
    policy = SmolVLAPolicy(made)
    if vision["hidden_size"] < 200:
        enliven(policy)
    policy.eval()
    return checkpoints.save(policy, folder / "policy", checkpoints.stats(list(cameras)))


def enliven(policy: torch.nn.Module) -> None:
    """Sets weights at which every input affects the result: at initial weights most inputs have almost no effect."""
    draw = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if weight.dim() >= 2:
                fan = weight[0].numel() if "embed" not in name else 1
                weight.copy_(torch.randn(weight.shape, generator=draw) * (1.0 / fan) ** 0.5)
            else:
                weight.add_(0.1 * torch.randn(weight.shape, generator=draw))
