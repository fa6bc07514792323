"""What the Pod Security standard "restricted" allows, as the chart's pod and the pools' are held against it."""

RESTRICTED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
