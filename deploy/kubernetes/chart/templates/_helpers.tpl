{{- define "hush.labels" -}}
app.kubernetes.io/name: hushstream
app.kubernetes.io/instance: {{ .Values.name }}
{{- end }}

{{- define "hush.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "hush.configMap" -}}
{{ if .Values.config.toml }}{{ .Values.name }}-config{{ else }}{{ .Values.config.existingConfigMap }}{{ end }}
{{- end }}

{{/* Address of the operator's metrics; empty: that of the program, which no other pod reaches. */}}
{{- define "hush.operatorHost" -}}
{{ .Values.metrics.operatorHost | default (ternary "0.0.0.0" "" .Values.networkPolicy.enabled) }}
{{- end }}

{{/* Of workers and of the Job: who runs it, with which rights. */}}
{{- define "hush.confined" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "hush.confinedContainer" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{/* Connection with the user of `sasl` and the certificate of the Secret `client`, and keys but where
`keyless` is set, as in what follows. */}}
{{- define "hush.environment" -}}
{{- $kafka := .root.Values.kafka -}}
- { name: HUSH_KAFKA__BOOTSTRAP, value: {{ $kafka.bootstrap | quote }} }
{{- if ne $kafka.securityProtocol "PLAINTEXT" }}
- { name: HUSH_KAFKA__SECURITY_PROTOCOL, value: {{ $kafka.securityProtocol }} }
{{- end }}
{{- if hasPrefix "SASL" $kafka.securityProtocol }}
- { name: HUSH_KAFKA__SASL_MECHANISM, value: {{ required "kafka.sasl.mechanism is needed" $kafka.sasl.mechanism }} }
- { name: HUSH_KAFKA__SASL_USERNAME, value: {{ required "kafka.sasl.username is needed" .sasl.username | quote }} }
- { name: HUSH_KAFKA__SASL_PASSWORD_FILE, value: /run/secrets/kafka-user/password }
{{- with $kafka.sasl.tokenUrl }}
- { name: HUSH_KAFKA__SASL_TOKEN_URL, value: {{ . | quote }} }
{{- end }}
{{- with $kafka.sasl.tokenScope }}
- { name: HUSH_KAFKA__SASL_TOKEN_SCOPE, value: {{ . | quote }} }
{{- end }}
{{- end }}
{{- if $kafka.tls.caSecret }}
- { name: HUSH_KAFKA__SSL_CAFILE, value: /run/secrets/kafka-ca/ca.crt }
{{- end }}
{{- if .client }}
- { name: HUSH_KAFKA__SSL_CERTFILE, value: /run/secrets/kafka-client/tls.crt }
- { name: HUSH_KAFKA__SSL_KEYFILE, value: /run/secrets/kafka-client/tls.key }
{{- end }}
{{- if not .keyless }}
- { name: HUSH_NOISE_KEY_FILE, value: /run/secrets/hush/noise_key }
{{- if .root.Values.signingKey.existingSecret }}
- { name: HUSH_SIGNING_KEY_FILE, value: /run/secrets/hush-signing/signing_key }
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "hush.mounts" -}}
{{- $kafka := .root.Values.kafka -}}
- { name: config, mountPath: /etc/hush, readOnly: true }
{{- if not .keyless }}
- { name: noise-key, mountPath: /run/secrets/hush, readOnly: true }
{{- if .root.Values.signingKey.existingSecret }}
- { name: signing-key, mountPath: /run/secrets/hush-signing, readOnly: true }
{{- end }}
{{- range $number, $name := .root.Values.extraSecrets }}
- { name: extra-{{ $number }}-key, mountPath: /run/secrets/extra/{{ $name }}, readOnly: true }
{{- end }}
{{- end }}
{{- if hasPrefix "SASL" $kafka.securityProtocol }}
- { name: kafka-user, mountPath: /run/secrets/kafka-user, readOnly: true }
{{- end }}
{{- if $kafka.tls.caSecret }}
- { name: kafka-ca, mountPath: /run/secrets/kafka-ca, readOnly: true }
{{- end }}
{{- if .client }}
- { name: kafka-client, mountPath: /run/secrets/kafka-client, readOnly: true }
{{- end }}
- { name: tmp, mountPath: /tmp }
{{- end }}

{{/* 288 is 0440: owner and group, which is fsGroup, may read. */}}
{{- define "hush.volumes" -}}
{{- $values := .root.Values -}}
- name: config
  configMap: { name: {{ include "hush.configMap" .root }} }
{{- if not .keyless }}
- name: noise-key
  secret:
    secretName: {{ $values.noiseKey.existingSecret }}
    defaultMode: 288
    items: [{ key: {{ $values.noiseKey.key }}, path: noise_key }]
{{- with $values.signingKey.existingSecret }}
- name: signing-key
  secret:
    secretName: {{ . }}
    defaultMode: 288
    items: [{ key: {{ $values.signingKey.key }}, path: signing_key }]
{{- end }}
{{- range $number, $name := $values.extraSecrets }}
- name: extra-{{ $number }}-key
  secret: { secretName: {{ $name }}, defaultMode: 288 }
{{- end }}
{{- end }}
{{- if hasPrefix "SASL" $values.kafka.securityProtocol }}
- name: kafka-user
  secret:
    secretName: {{ required "kafka.sasl.existingSecret is needed" .sasl.existingSecret }}
    defaultMode: 288
    items: [{ key: {{ .sasl.key }}, path: password }]
{{- end }}
{{- with $values.kafka.tls.caSecret }}
- name: kafka-ca
  secret:
    secretName: {{ . }}
    items: [{ key: {{ $values.kafka.tls.caKey }}, path: ca.crt }]
{{- end }}
{{- with .client }}
- name: kafka-client
  secret: { secretName: {{ . }}, defaultMode: 288 }
{{- end }}
- name: tmp
  emptyDir: { sizeLimit: 256Mi }
{{- end }}
