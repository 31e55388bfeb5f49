{{- /* What the pods of all processes have: list of root, process and its values. */ -}}
{{- define "fairlead.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
labels:
  {{- include "fairlead.labels" (list $root (index . 1)) | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "fairlead.pod" -}}
{{- $root := index . 0 -}}
{{- $process := index . 1 -}}
{{- $values := index . 2 -}}
securityContext:
  {{- toYaml ($root.Values.podSecurityContext | default dict) | nindent 2 }}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.spreadOver }}
topologySpreadConstraints:
  {{- range . }}
  - topologyKey: {{ . | quote }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "fairlead.selector" (list $root $process) | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* What all containers have: list of root and the process's values. */ -}}
{{- define "fairlead.container" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
image: {{ include "fairlead.image" (list $root $values.image) | quote }}
imagePullPolicy: {{ $root.Values.imagePullPolicy | quote }}
securityContext:
  {{- toYaml ($root.Values.containerSecurityContext | default dict) | nindent 2 }}
{{- with $values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A value as a process reads it; Helm has numbers as floats, and writes large ones as 6.7e+07. */ -}}
{{- define "fairlead.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{- /* Bytes of a quantity with a unit, such as 1.5Gi. */ -}}
{{- define "fairlead.bytes" -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- mulf $number (index $units (trimPrefix $number .)) | int64 -}}
{{- end }}

{{- /* Variables that every process has, then those in its `settings`, and others: list of root and these. */ -}}
{{- define "fairlead.environment" -}}
{{- $root := index . 0 -}}
- name: FAIRLEAD_LOG_FORMAT
  value: {{ $root.Values.log.format | quote }}
- name: FAIRLEAD_LOG_LEVEL
  value: {{ $root.Values.log.level | quote }}
{{- range $variables := rest . }}
{{- range $name, $value := $variables }}
- name: {{ $name | quote }}
  value: {{ include "fairlead.text" $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A variable from a Secret: list of variable, Secret and key. */ -}}
{{- define "fairlead.secretVariable" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 | quote }}
      key: {{ index . 2 | quote }}
{{- end }}

{{- define "fairlead.databaseVariables" -}}
{{- if .Values.database.bundled.enabled }}
{{- include "fairlead.secretVariable" (list "POSTGRES_PASSWORD" (default (printf "%s-postgres" (include "fairlead.name" .)) .Values.database.bundled.existingSecret) "password") }}
- name: FAIRLEAD_DATABASE_URL
  value: postgresql://fairlead:$(POSTGRES_PASSWORD)@{{ include "fairlead.name" . }}-postgres:5432/fairlead
{{- else }}
{{- include "fairlead.secretVariable" (list "FAIRLEAD_DATABASE_URL" .Values.database.existingSecret.name .Values.database.existingSecret.key) }}
{{- end }}
{{- end }}

{{- /* The API in the cluster. */ -}}
{{- define "fairlead.apiUrl" -}}
http://{{ include "fairlead.name" . }}-api:{{ .Values.api.service.port }}
{{- end }}

{{- /* Budget for evictions: list of root, process and its values. */ -}}
{{- define "fairlead.disruptionBudget" -}}
{{- $root := index . 0 -}}
{{- $process := index . 1 -}}
{{- if $root.Values.podDisruptionBudgets.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "fairlead.metadata" (list $root $process $process) | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "fairlead.selector" (list $root $process) | nindent 6 }}
{{- end }}
{{- end }}

{{- /* A ServiceAccount: list of root, process and its values. */ -}}
{{- define "fairlead.serviceAccount" -}}
{{- $root := index . 0 -}}
{{- $process := index . 1 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "fairlead.metadata" (list $root $process $process) | nindent 2 }}
  {{- with (index . 2).serviceAccountAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
