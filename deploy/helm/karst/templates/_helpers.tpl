{{/*
Everything is called karst-operator, whatever the release is called: two operators that look after the same
namespace would work against each other, and so the second one is refused by Helm for its names.
*/}}
{{- define "karst.labels" -}}
app.kubernetes.io/name: karst-operator
app.kubernetes.io/part-of: karst
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
strimzi.io/kind: cluster-operator
{{- end }}

{{- define "karst.selector" -}}
app.kubernetes.io/name: karst-operator
strimzi.io/kind: cluster-operator
{{- end }}

{{- define "karst.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
