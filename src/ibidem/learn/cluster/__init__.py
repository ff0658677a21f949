"""Target-side clustering of keys: families, the clusters of each family, and the centres of the clusters."""

from ibidem.learn.cluster.birch import birch
from ibidem.learn.cluster.centres import centroids, distances_to_centres
from ibidem.learn.cluster.clustering import Clustering, ClusterSettings, cluster_digest, cluster_keys, cluster_memory
from ibidem.learn.cluster.dbscan import dbscan
from ibidem.learn.cluster.eps_estimation import derive_eps
from ibidem.learn.cluster.families import EXCLUDED, NOISE, UNSAMPLED, Families, group_by_value

__all__ = [
    "EXCLUDED",
    "NOISE",
    "UNSAMPLED",
    "ClusterSettings",
    "Clustering",
    "Families",
    "birch",
    "centroids",
    "cluster_digest",
    "cluster_keys",
    "cluster_memory",
    "dbscan",
    "derive_eps",
    "distances_to_centres",
    "group_by_value",
]
