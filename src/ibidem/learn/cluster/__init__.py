"""Target-side clustering of keys: families, the clusters inside each, and their centres."""

from ibidem.learn.cluster.birch import birch
from ibidem.learn.cluster.centres import centroids, distances_to_centres
from ibidem.learn.cluster.clustering import Clustering, cluster_keys
from ibidem.learn.cluster.dbscan import dbscan
from ibidem.learn.cluster.families import Families, group_by_value
from ibidem.learn.cluster.labels import EXCLUDED, NOISE, UNSAMPLED
from ibidem.learn.cluster.scale import derive_eps
from ibidem.learn.cluster.settings import ClusterSettings

__all__ = [
    "EXCLUDED",
    "NOISE",
    "UNSAMPLED",
    "ClusterSettings",
    "Clustering",
    "Families",
    "birch",
    "centroids",
    "cluster_keys",
    "dbscan",
    "derive_eps",
    "distances_to_centres",
    "group_by_value",
]
