"""The ServiceTier contract: models of the API object, its conditions, and the CRD generated from them."""

from typing import Final

GROUP: Final = "tierkeeper.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "tierkeeper.dev/v1alpha1"
KIND: Final = "ServiceTier"
PLURAL: Final = "servicetiers"
