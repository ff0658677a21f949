"""The paper's own numbers, each with the table or figure it is printed in (Wang et al., ACL 2022)."""

from __future__ import annotations

# Table "The inference speed comparison on the same IT-domain test set" (introduction): tokens/s, BLEU.
INTRO_SPEED = {"base": (913.48, 37.50), "adaptive": (642.43, 46.32)}

# Table "The statistics of datasets": training sentences and tokens, test sentences and tokens, as printed. The sentence
# counts of Koran, IT and Medical are in each other's columns: Koran has 18K, IT 222K, Medical 248K.
DATASETS = {
    "koran": ("222K", "0.5M", "2K", "58K"),
    "it": ("248K", "3.6M", "2K", "34K"),
    "medical": ("18K", "6.9M", "2K", "57K"),
    "law": ("467K", "19M", "2K", "81K"),
    "subtitles": ("12.4M", "154M", "2K", "25K"),
}
DATASETS_ROTATED = {"koran": "18K", "it": "222K", "medical": "248K"}

# Table "The BLEU performance comparison of the feature reduction methods on the IT domain": k = 4.
COMPACT = {
    "NMT": 38.35,
    "adaptive kNN-MT": 47.20,
    "+ feature-wise PCA": 46.84,
    "+ weight-wise SVD": 45.96,
    "[DY] CKMT+DR": 37.10,
    "[DY] CKMT+WP": 46.41,
    "[DY] CKMT+NCE": 46.58,
    "[DY] CKMT+NCE+DR": 37.33,
    "[DY] CKMT+NCE+WP": 46.42,
    "[DY] CKMT+NCE+CL": 47.48,
    "[ST] CKMT+NCE+CL": 47.94,
    "[ST] CKMT+NCE+CL+DR": 47.64,
    "[ST] CKMT+NCE+CL+WP": 46.88,
}

# Table "The translation BLEU comparison in different domains".
DOMAINS = {
    "NMT": {"it": 38.35, "koran": 16.26, "law": 45.48, "medical": 39.99},
    "adaptive kNN-MT": {"it": 47.20, "koran": 19.39, "law": 62.64, "medical": 55.71},
    "CKMT*": {"it": 47.94, "koran": 19.92, "law": 62.98, "medical": 56.92},
    "G-CKMT*": {"it": 47.27, "koran": 19.84, "law": 62.55, "medical": 56.52},
}
DOMAINS_AVERAGE = {"NMT": 35.02, "adaptive kNN-MT": 46.24, "CKMT*": 46.94, "G-CKMT*": 46.55}

# Table "Performance of CKMT* using decreasing rates of data to train the Compact Network": size of the store, BLEU.
LIMITED_DATA = {
    1.0: ("3.6M", 47.94),
    0.8: ("2.9M", 47.67),
    0.6: ("2.2M", 47.57),
    0.4: ("1.4M", 47.29),
    0.2: ("0.7M", 46.98),
    0.01: ("0.04M", 46.21),
}

# Table "Translation BLEU Results on 4 different domains with 10% pruning rate": k = 4. The printed average of RP is
# 45.85, but its four numbers give 45.95.
PRUNING = {
    "CKMT*": {"it": 47.94, "koran": 19.92, "law": 62.98, "medical": 56.92},
    "CKMT*+SP": {"it": 43.01, "koran": 19.50, "law": 59.40, "medical": 52.16},
    "CKMT*+LTP": {"it": 46.78, "koran": 19.28, "law": 61.96, "medical": 55.21},
    "CKMT*+HTP": {"it": 45.95, "koran": 20.10, "law": 59.51, "medical": 55.14},
    "CKMT*+RP": {"it": 46.38, "koran": 19.99, "law": 61.96, "medical": 55.45},
    "CKMT*+Ours": {"it": 47.06, "koran": 20.01, "law": 61.72, "medical": 55.33},
}
PRUNING_AVERAGE = {
    "CKMT*": 46.94,
    "CKMT*+SP": 43.52,
    "CKMT*+LTP": 45.81,
    "CKMT*+HTP": 45.18,
    "CKMT*+RP": 45.85,
    "CKMT*+Ours": 46.03,
}

# Table "The computation cost of PCKMT* with no BLEU degradation" (Subtitles, 154M entries): by (system, k, batch)
# sentences/s and tokens/s; by system and k the storage in GB, original and quantised; the pruning rates.
LATENCY_SPEED = {
    ("base", None, 8): (49, 572),
    ("base", None, 64): (166, 1959),
    ("adaptive", 16, 8): (26, 292),
    ("adaptive", 16, 64): (55, 618),
    ("adaptive", 8, 8): (26, 295),
    ("adaptive", 8, 64): (59, 663),
    ("adaptive", 4, 8): (26, 296),
    ("adaptive", 4, 64): (58, 660),
    ("PCKMT*", 16, 8): (34, 384),
    ("PCKMT*", 16, 64): (85, 963),
    ("PCKMT*", 8, 8): (37, 419),
    ("PCKMT*", 8, 64): (100, 1132),
    ("PCKMT*", 4, 8): (39, 444),
    ("PCKMT*", 4, 64): (98, 1108),
}
LATENCY_STORAGE = {
    ("adaptive", 16): (295.2, 12.2),
    ("adaptive", 8): (295.2, 12.2),
    ("adaptive", 4): (295.2, 12.2),
    ("PCKMT*", 16): (15.9, 9.1),
    ("PCKMT*", 8): (6.5, 3.98),
    ("PCKMT*", 4): (12.7, 7.0),
}
LATENCY_RATES = {16: 0.2, 8: 0.7, 4: 0.4}

# Table "The optimal performances of our approach on the Subtitles test set" (batch 64): by (system, k) BLEU,
# sentences/s, tokens/s, entries, pruning rate. The adaptive row is printed without a k; its speed is that of k = 4.
OPTIMAL = {
    ("adaptive", 4): (31.36, 58, 660, "154M", 0.0),
    ("CKMT*", 16): (31.64, 74, 849, "154M", 0.0),
    ("PCKMT*", 16): (31.58, 85, 963, "123M", 0.2),
    ("CKMT*", 8): (31.43, 78, 890, "154M", 0.0),
    ("PCKMT*", 8): (31.72, 91, 1024, "108M", 0.3),
    ("CKMT*", 4): (31.28, 79, 899, "154M", 0.0),
    ("PCKMT*", 4): (31.23, 85, 968, "138M", 0.1),
}

# Table "BLEU scores of different compact feature dimensions on the IT domain validation set" (appendix): loss, BLEU.
DIMENSIONS = {128: (1.82, 44.42), 64: (1.84, 44.49), 32: (1.88, 42.41), 16: (2.03, 39.49), None: (1.82, 44.20)}

# Table "The number of parameters of different models" (appendix), in millions.
PARAMETERS = {"MT": 269.7, "Adaptive kNN-MT": 269.7, "CKMT*": 270.0}

# Section "Performance of Pruning Methods": unique bigrams, entries and mean occurrences in the IT memory.
REDUNDANCY = {"bigrams": "0.4M", "entries": "3.6M", "occurrences": 9}
