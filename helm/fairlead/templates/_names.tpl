{{- /* Beginning of every object's name. */ -}}
{{- define "fairlead.name" -}}
{{- $name := .Values.fullnameOverride | default (contains "fairlead" .Release.Name | ternary .Release.Name (printf "%s-fairlead" .Release.Name)) -}}
{{- /* Services have it, and theirs is a DNS label that begins with a letter. */ -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "the release's name %q: objects cannot be named %q; set fullnameOverride to a name that begins with a letter and has only a-z, 0-9 and -" .Release.Name $name) }}
{{- end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* Labels that select the pods of a process: list of root and process. */ -}}
{{- define "fairlead.selector" -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* Labels of an object: list of root and process. */ -}}
{{- define "fairlead.labels" -}}
{{- $root := index . 0 -}}
{{ include "fairlead.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service | quote }}
app.kubernetes.io/part-of: fairlead
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Name, namespace and labels: list of root, process and the end of the name. */ -}}
{{- define "fairlead.metadata" -}}
{{- $root := index . 0 -}}
name: {{ printf "%s-%s" (include "fairlead.name" $root) (index . 2) }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "fairlead.labels" (list $root (index . 1)) | nindent 2 }}
{{- end }}

{{- /* An image: list of root and the values `image`. One with a registry of its own, as it is not Fairlead's, is not in `imageRegistry`. */ -}}
{{- define "fairlead.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with hasKey $image "registry" | ternary $image.registry $root.Values.imageRegistry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Secrets' names. */ -}}
{{- define "fairlead.tokensSecret" -}}
{{- .Values.tokens.existingSecret | default (printf "%s-tokens" (include "fairlead.name" .)) }}
{{- end }}
{{- define "fairlead.gatewayKeysSecret" -}}
{{- .Values.gatewayKeys.existingSecret | default (printf "%s-gateway-keys" (include "fairlead.name" .)) }}
{{- end }}

{{- /* A secret's value as base64: that in the cluster, else a new one: list of root, Secret and key. */ -}}
{{- define "fairlead.keptOrNew" -}}
{{- $root := index . 0 -}}
{{- $found := lookup "v1" "Secret" $root.Release.Namespace (index . 1) -}}
{{- $data := ($found | default dict).data | default dict -}}
{{- index $data (index . 2) | default (randAlphaNum 43 | b64enc) | quote -}}
{{- end }}
