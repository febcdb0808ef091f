{{- define "llmengine-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "llmengine-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "llmengine-operator.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "llmengine-operator.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "llmengine-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "llmengine-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "llmengine-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "llmengine-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "llmengine-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "llmengine-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name must be given when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "llmengine-operator.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the operator reads at start: trtllm_operator/config.py. */}}
{{- define "llmengine-operator.config" -}}
operatorImage: {{ include "llmengine-operator.image" . | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
artifactGraceSeconds: {{ .Values.artifactGraceSeconds }}
frontClusterRole: {{ include "llmengine-operator.fullname" . }}-front
{{- with .Values.hubEndpoint }}
hubEndpoint: {{ . | quote }}
{{- end }}
{{- with .Values.toolchainImages }}
toolchainImages:
  {{- range $release, $image := . }}
  {{ $release | quote }}: {{ $image | quote }}
  {{- end }}
{{- end }}
{{- with .Values.watchNamespaces }}
watchNamespaces: {{ toJson . }}
{{- end }}
{{- end }}
