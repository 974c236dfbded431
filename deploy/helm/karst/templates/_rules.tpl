{{/*
What the operator may do in the namespaces it looks after: no wildcards, no Secrets, nothing it does not do today.
Server-side apply needs "create" beside "patch". Pools are patched only for the finalizer that lets their nodes leave in
order. Pods, ConfigMaps and claims are deleted with the node they belong to, a pod set with its pool.
*/}}
{{- define "karst.rules" -}}
- apiGroups: ["kafka.strimzi.io"]
  resources: ["kafkas"]
  verbs: ["get", "list", "watch"]
- apiGroups: ["kafka.strimzi.io"]
  resources: ["kafkanodepools"]
  verbs: ["get", "list", "watch", "patch"]
- apiGroups: ["kafka.strimzi.io"]
  resources: ["kafkas/status", "kafkanodepools/status"]
  verbs: ["get", "patch"]
- apiGroups: ["core.strimzi.io"]
  resources: ["strimzipodsets"]
  verbs: ["get", "list", "watch", "create", "patch", "delete"]
- apiGroups: ["core.strimzi.io"]
  resources: ["strimzipodsets/status"]
  verbs: ["patch"]
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["get", "list", "watch", "create", "patch", "delete"]
- apiGroups: [""]
  resources: ["configmaps", "persistentvolumeclaims"]
  verbs: ["get", "list", "watch", "create", "patch", "delete"]
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get", "list", "watch", "create", "update", "patch", "delete"]
- apiGroups: [""]
  resources: ["services", "serviceaccounts"]
  verbs: ["get", "list", "watch", "create", "patch"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- end }}
