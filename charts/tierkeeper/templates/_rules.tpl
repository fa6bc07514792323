{{- /* The one list of what the operator may do; rbac.yaml binds it cluster-wide or namespace by namespace. */}}
{{- define "tierkeeper.rules" -}}
# The objects it serves. It never writes a spec, a finalizer or an annotation, so it may not.
- apiGroups: [tierkeeper.dev]
  resources: [servicetiers]
  verbs: [get, list, watch]
# Conditions, percentiles and the last decision.
- apiGroups: [tierkeeper.dev]
  resources: [servicetiers/status]
  verbs: [patch]
# The engine pool of a tier. Server-side apply of a new object needs create and patch; a tier's children go with it by their
# owner reference, so delete is not needed.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
# The replica lever, written by its own field manager.
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [patch]
# The address of a pool; the plugin and the live limits that its pods mount.
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch]
# One pod at a time leaves a pool during a node drain.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
# Readiness is counted from pods; the annotation that makes the kubelet refresh the live limits at once is a patch.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
# Decisions and failures as Events on the ServiceTier. The operator itself holds back repetitions, so none is counted up.
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{- /* Only with leaderElection.enabled, and only in the operator's own namespace. */}}
{{- define "tierkeeper.leaseRules" -}}
# Who of the replicas acts. By name, the first write included: server-side apply names what it creates.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, patch]
  resourceNames: [{{ include "tierkeeper.fullname" . | quote }}]
{{- end }}
