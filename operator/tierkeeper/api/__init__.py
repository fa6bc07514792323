"""The ServiceTier contract: models of the API object, its conditions, and the CRD generated from them."""

GROUP = "tierkeeper.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ServiceTier"
PLURAL = "servicetiers"
