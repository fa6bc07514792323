{{- define "tierkeeper.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tierkeeper.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "tierkeeper.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "tierkeeper.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* A Service's name is a label of at most 63 characters, without dots. */}}
{{- define "tierkeeper.metricsService" -}}
{{- include "tierkeeper.fullname" . | replace "." "-" | trunc 55 | trimSuffix "-" }}-metrics
{{- end }}

{{- define "tierkeeper.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "tierkeeper.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* A digest says it all; with a tag beside it the tag would look as if it counted. */}}
{{- define "tierkeeper.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- /* A Deployment's selector cannot change, so these two must never carry a version. */}}
{{- define "tierkeeper.selectorLabels" -}}
app.kubernetes.io/name: tierkeeper
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "tierkeeper.ownLabels" -}}
{{ include "tierkeeper.selectorLabels" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* merge: where both name a label, the left one wins. The chart's own must, or no selector would match any more. */}}
{{- define "tierkeeper.labels" -}}
{{- merge (include "tierkeeper.ownLabels" . | fromYaml) .Values.commonLabels | toYaml }}
{{- end }}

{{- /* Labels of what the Prometheus Operator reads; more of them as the second of the pair. */}}
{{- define "tierkeeper.monitorLabels" -}}
{{- $context := first . }}
{{- merge (include "tierkeeper.ownLabels" $context | fromYaml) (last .) $context.Values.monitoring.labels $context.Values.commonLabels | toYaml }}
{{- end }}

{{- /* The port of a URL, or the one that its scheme means. */}}
{{- define "tierkeeper.portOf" -}}
{{- $url := urlParse . }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "443" "80" (eq $url.scheme "https")) }}
{{- end }}

{{- /* What selects the pods of all pools: the operator puts both labels on each. */}}
{{- define "tierkeeper.poolSelector" -}}
matchLabels:
  app.kubernetes.io/managed-by: tierkeeper
matchExpressions:
  - key: tierkeeper.dev/tier
    operator: Exists
{{- end }}

{{- /* Numbers that a schema can check only one by one. Two operators without a Lease would both decide. */}}
{{- define "tierkeeper.checkReplicas" -}}
{{- $lease := .Values.leaderElection }}
{{- if and (gt (int .Values.replicas) 1) (not $lease.enabled) }}
{{- fail (printf "replicas (%d) above 1 need leaderElection.enabled=true: without it they would all act" (int .Values.replicas)) }}
{{- end }}
{{- if gt (mul 5 (int $lease.renewDeadlineSeconds)) (mul 4 (int $lease.leaseDurationSeconds)) }}
{{- fail (printf "leaderElection.renewDeadlineSeconds (%d) must be at most 4/5 of leaderElection.leaseDurationSeconds (%d)" (int $lease.renewDeadlineSeconds) (int $lease.leaseDurationSeconds)) }}
{{- end }}
{{- if gt (mul 2 (int $lease.retryPeriodSeconds)) (int64 $lease.renewDeadlineSeconds) }}
{{- fail (printf "leaderElection.retryPeriodSeconds (%d) must be at most half of leaderElection.renewDeadlineSeconds (%d)" (int $lease.retryPeriodSeconds) (int $lease.renewDeadlineSeconds)) }}
{{- end }}
{{- end }}
