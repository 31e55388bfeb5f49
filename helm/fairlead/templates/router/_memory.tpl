{{- /* Bytes that a router's settings may take in the worst case, as `fairlead router --help` says: what
`fairlead_router.limits.needed_memory` computes. files/router-memory.json has its numbers. */ -}}
{{- define "fairlead.routerMemory" -}}
{{- $numbers := .Files.Get "files/router-memory.json" | fromJson -}}
{{- $given := .Values.router.settings | default dict -}}
{{- $settings := dict "FAIRLEAD_BODY_MEMORY_BYTES" $given.FAIRLEAD_BODY_MEMORY_BYTES -}}
{{- range $name, $default := $numbers.defaults -}}
{{- $_ := set $settings $name (hasKey $given $name | ternary (index $given $name) $default) -}}
{{- end -}}
{{- $body := float64 $settings.FAIRLEAD_MAX_BODY_BYTES -}}
{{- $largest := maxf $body (float64 $settings.FAIRLEAD_MAX_UPLOAD_BYTES) -}}
{{- $reading := maxf (mulf $numbers.readingEach $body) (minf (mulf $numbers.readingValuesEach $body) $numbers.mostForValues) -}}
{{- $besides := addf $numbers.process $settings.FAIRLEAD_KEPT_PROMPTS_BYTES $reading -}}
{{- $least := maxf (divf $besides (subf 1 (mulf $numbers.bytesEach $numbers.shareOfMemory))) (addf $besides (mulf $numbers.bytesEach 2 $largest)) -}}
{{- with $settings.FAIRLEAD_BODY_MEMORY_BYTES -}}
{{- $least = addf $besides (mulf $numbers.bytesEach .) -}}
{{- end -}}
{{- mulf $numbers.step (ceil (divf $least $numbers.step)) | int64 -}}
{{- end }}

{{- /* The resources of a router's container: with the memory that its settings may take, where `limits` names none. */ -}}
{{- define "fairlead.routerResources" -}}
{{- $resources := deepCopy (.Values.router.resources | default dict) -}}
{{- if and (hasKey $resources "limits") (not (hasKey $resources.limits "memory")) -}}
{{- $_ := set $resources.limits "memory" (printf "%dMi" (div (include "fairlead.routerMemory" . | int64) 1048576)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}
