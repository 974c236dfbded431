{{/*
What the operator may do in the namespaces it looks after: no wildcards, no Secrets, nothing it does not do today.
Server-side apply needs "create" beside "patch". Pods are patched only to give one that lost its owner a new one, and
deleted only when they ended, to make room for their successors. Nothing else is ever deleted.
*/}}
{{- define "karst.rules" -}}
- apiGroups: ["kafka.strimzi.io"]
  resources: ["kafkas", "kafkanodepools"]
  verbs: ["get", "list", "watch"]
- apiGroups: ["kafka.strimzi.io"]
  resources: ["kafkas/status", "kafkanodepools/status"]
  verbs: ["get", "patch"]
- apiGroups: ["core.strimzi.io"]
  resources: ["strimzipodsets"]
  verbs: ["get", "list", "watch", "create", "patch"]
- apiGroups: ["core.strimzi.io"]
  resources: ["strimzipodsets/status"]
  verbs: ["patch"]
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["get", "list", "watch", "create", "patch", "delete"]
- apiGroups: [""]
  resources: ["configmaps", "services", "serviceaccounts", "persistentvolumeclaims"]
  verbs: ["get", "list", "watch", "create", "patch"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- end }}
